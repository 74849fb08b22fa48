"""The command line as its users meet it: a small program with data, and two ways to call it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

PROGRAM = """\
step line(x: f32[batch, 3], y: f32[batch]) {
    param w:    f32[3] = ones()
    param b:    f32    = zeros()
    state seen: i32    = 0

    error = x @ w + b - y
    loss  = mean(square(error))
    seen <- seen + 1

    minimize loss with sgd(0.1)
    report worst = max(abs(error))
    report mae   = mean(abs(error))
}

data train = npz("train.npz", batch=8, shuffle(seed=0))
data test  = npz("test.npz", batch=8)

train for 3 epochs
strategy default = mirrored(2)
"""


@dataclass
class Result:
    status: int
    out: str
    err: str


Call = Callable[..., Result]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with line.gc and its data, and the working directory."""
    rng = np.random.default_rng(0)
    for name, n in (("train", 20), ("test", 11)):
        x = rng.normal(size=(n, 3)).astype(np.float32)
        np.savez(tmp_path / f"{name}.npz", x=x, y=x @ np.array([1, -2, 3], np.float32))
    (tmp_path / "line.gc").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """`graphc ARGS` in this process."""
    from graphc.cli import main

    def run(*args: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["graphc", *map(str, args)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capfd.readouterr()
        assert "Traceback" not in out + err
        return Result(int(stop.value.code or 0), out, err)

    return run


@pytest.fixture
def process(folder: Path) -> Call:
    """`graphc ARGS` in a process of its own; python= runs a script instead."""

    def run(
        *args: object, python: str | None = None, text: str = "", env: Mapping[str, str] = {}
    ) -> Result:
        command: Sequence[str] = [sys.executable, "-m", "graphc", *map(str, args)]
        if python is not None:
            command = [sys.executable, "-c", python, *map(str, args)]
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, cwd=folder,
            env={**os.environ, **env},
        )  # fmt: skip
        return Result(done.returncode, done.stdout, done.stderr)

    return run
