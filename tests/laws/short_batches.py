"""Law: a step of any number of examples gives what the reference backend gives, on either path.

Under `reproducible`, it gives the bits of one device with the same grid.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from graphc_numpy import NumpyBackend
from guard import Guard, fresh_arrays
from laws.programs.strategies import STRATEGIES

import graphc
from graphc import nn
from graphc.plan.plan import Plan
from graphc.runtime.backends.backend import Backend
from graphc.runtime.synchronous.fast_paths import FastPaths
from graphc.runtime.trainer import Trainer

FULL = 12
MORE = (
    'tensor_split(2, {"w": 0})', 'tensor_split(3, {"w": 0}) * accumulate(2)',
    "mirrored(3) * accumulate(4)", "accumulate(2) * zero(3, stage=2)",
    "mirrored(3) * reproducible(8)", "mirrored(5) * reproducible(5)", "mirrored(2) * reproducible(11)",
    "zero(2, stage=3) * reproducible(4)", "zero(3, stage=3) * reproducible(7)",
    "central_storage(2) * reproducible(4)", "parameter_server(3, 2) * reproducible(6)",
    "mirrored(2) * mirrored(2) * reproducible(8)", "accumulate(3) * reproducible(12)",
)  # fmt: skip


def loss(p: Any, b: Any) -> Any:
    h = np.tanh(p["e"][b["ids"]] + b["x"] @ p["w"])
    each = nn.cross_entropy(h @ p["v"], b["y"])
    graphc.report("most", np.max(each))
    graphc.report("least", np.min(h))
    return np.mean(each)


def batch(n: int, width: int) -> dict[str, Any]:
    rng = np.random.default_rng(n)
    return {
        "ids": rng.integers(0, 7, n).astype(np.int32),
        "x": rng.normal(size=(n, width)).astype(np.float32),
        "y": rng.integers(0, 4, n).astype(np.int32),
    }


@cache
def params(width: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shapes = {"e": (7, 6), "w": (width, 6), "v": (6, 4)}
    return {k: rng.normal(size=s).astype(np.float32) for k, s in shapes.items()}


@cache
def plan(strategy: str, width: int) -> Plan:
    made = graphc.compile(
        loss, params(width), batch(FULL, width), optimizer=graphc.optim.sgd(0.5), strategy=strategy
    )
    with made:
        return made.trainer.plan


def steps(
    strategy: str, width: int, backend: Backend | str, guard: Guard | None = None
) -> list[dict[str, Any]]:
    """What steps of every number of examples give, each from the same variables."""
    found = []
    with Trainer(plan(strategy, width), backend) as trainer:
        first = trainer.variables()
        trainer.step(batch(FULL, width))
        for n in (1, *range(FULL, 0, -1)):
            trainer.load(first)
            made = batch(n, width)
            if guard is not None:
                made = {k: guard.copy(x) for k, x in made.items()}
            found.append(trainer.step(made) | trainer.variables())
        paths = getattr(trainer.fast_path, "__self__", None)
        if isinstance(paths, FastPaths) and guard is not None:
            assert paths.full.done == 1
            assert paths.short is not None and paths.short.done == FULL - 1
    return found


ALL = tuple(s.replace("{map}", '{"w": 1, "v": 0}') for s in (*STRATEGIES, *MORE))


def check(strategy: str, width: int) -> None:
    """Raise AssertionError unless steps of every number of examples are those of the reference."""
    guard = Guard()
    with fresh_arrays():
        found = steps(
            strategy, width, NumpyBackend(native=True, allocator=guard.allocator()), guard
        )
        guard.check()
    wanted = steps(strategy, width, "reference")
    for mine, theirs in zip(found, wanted, strict=True):
        for name, x in theirs.items():
            np.testing.assert_allclose(mine[name], x, rtol=2e-4, atol=2e-5, err_msg=name)
    if "reproducible" in strategy:
        grid = strategy[strategy.index("reproducible") :]
        alone = steps(grid, width, NumpyBackend(native=True))
        for mine, theirs in zip(found, alone, strict=True):
            for name, x in theirs.items():
                assert np.asarray(mine[name]).tobytes() == np.asarray(x).tobytes(), name
