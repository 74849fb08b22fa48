"""Compiling takes work in proportion to the program: twice the layers, twice the work.

Counted is how often each line of graphc runs until the first step is done, as a debugger counts
it: each turn of a loop, of a comprehension or of a generator is one. No clock is read.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn

graphc_numpy = pytest.importorskip("graphc_numpy")

SOME = {"dense": 8, "many_small": 12}  # layers: kernels have reached their largest size
# A line that runs for every node runs twice as often in twice the layers; one that runs for every
# node in every node, four times.
MOST, OFTEN = 3.0, 100
FOLDERS = tuple(str(Path(module.__file__ or "").parent) for module in (graphc, graphc_numpy))


def lines_run(function: Callable[[], Any]) -> Counter[tuple[CodeType, int]]:
    """How often each line runs, by its function and its number."""
    found = Counter[tuple[CodeType, int]]()

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            found[frame.f_code, frame.f_lineno] += 1
        return line

    def call(frame: FrameType, event: str, argument: Any) -> Any:
        return line if frame.f_code.co_filename.startswith(FOLDERS) else None

    sys.settrace(call)
    try:
        function()
    finally:
        sys.settrace(None)
    return found


def dense(layers: int) -> tuple[Any, Any]:
    def loss(p: Any, b: Any) -> Any:
        x = b
        for i in range(layers):
            x = nn.relu(x @ p[f"w{i}"] + p[f"b{i}"])
        return np.mean(x**2)

    weights = {f"w{i}": np.ones((4, 4), np.float32) for i in range(layers)}
    return loss, weights | {f"b{i}": np.ones(4, np.float32) for i in range(layers)}


def many_small(layers: int) -> tuple[Any, Any]:
    """Values that are read again soon, and long after."""

    def loss(p: Any, b: Any) -> Any:
        xs = [p["w"] * np.mean(b)]
        for i in range(3 * layers):
            xs.append(np.tanh(xs[i // 2] + xs[-1]) * xs[-1 - i % 3])
            xs.append(xs[-1] - np.mean(xs[-2], axis=1, keepdims=True))
        return np.mean(xs[-1])

    return loss, {"w": np.ones((4, 4), np.float32)}


def first_step(
    program: Callable[[int], tuple[Any, Any]], layers: int, strategy: str
) -> Counter[tuple[CodeType, int]]:
    """What runs until the first step is done."""
    loss, weights = program(layers)
    batch = np.ones((8, 4), np.float32)

    def run() -> None:
        o = graphc.optim.adam(0.1)
        graphc.compile(loss, weights, batch, optimizer=o, strategy=strategy).step(batch)

    return lines_run(run)


@pytest.mark.parametrize(
    ("program", "strategy"),
    [
        (dense, "one_device()"),
        pytest.param(many_small, "one_device()", marks=pytest.mark.ci),
        pytest.param(dense, "mirrored(2)", marks=pytest.mark.slow),
        pytest.param(dense, "accumulate(2)", marks=pytest.mark.slow),
    ],
)
def test_twice_the_layers_take_twice_the_work(
    program: Callable[[int], tuple[Any, Any]], strategy: str
) -> None:
    layers = SOME[program.__name__]
    first_step(program, 2, strategy)  # imports, and what is made once
    some, twice = (first_step(program, n, strategy) for n in (layers, 2 * layers))
    grown = {
        f"{code.co_filename}:{number} ({code.co_name})": (some[code, number], count)
        for (code, number), count in twice.items()
        if count > MOST * max(some[code, number], OFTEN)
    }
    assert not grown


def test_a_scan_for_each_value_is_told() -> None:
    def squares(n: int) -> int:
        return sum(1 for _ in range(n) for _ in range(n))

    counts = [sum(lines_run(lambda n=n: squares(n)).values()) for n in (50, 100)]  # type: ignore[misc]
    assert counts == [0, 0]  # a test is no line of graphc
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "FOLDERS", (str(Path(__file__).parent),))
        counts = [max(lines_run(lambda n=n: squares(n)).values()) for n in (50, 100)]  # type: ignore[misc]
    assert counts[1] > MOST * counts[0]


def test_the_benchmark_finds_every_stage() -> None:
    """It replaces functions by name, where they may move."""
    script = Path(__file__).parents[1] / "benchmarks" / "compile.py"
    command = [sys.executable, str(script), "--work", "dense", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    seconds = json.loads(done.stdout.splitlines()[-1])
    stages = ("trace", "passes", "schedule", "lower", "print", "llvm")
    assert all(seconds[stage] > 0 for stage in stages)
