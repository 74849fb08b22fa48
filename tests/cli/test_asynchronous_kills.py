"""Asynchronous runs that are killed as a whole, and resumed from a checkpoint that was written
meanwhile: every example is used once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

PROGRAM = """
step count(x: f64[batch, 3]) {
    param w: f64[3] = ones()
    state seen: f64[3] = zeros()
    seen <- seen + sum(x, axis=0)
    minimize mean(x @ w) with sgd(0.0)
}
data train = npz("data.npz", batch=4, shuffle(seed=1))
"""
RAY = pytest.param(
    "ray", 1500, 100,
    marks=[
        pytest.mark.ci,
        pytest.mark.skipif(not find_spec("ray"), reason="RAY IS NOT INSTALLED: not tested on it"),
    ],
)  # fmt: skip


def started(*words: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "ignore", "-m", "graphc", *map(str, words)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, start_new_session=True, text=True, **pipes)


@pytest.mark.parametrize(
    ("driver", "batches", "every"),
    [pytest.param("threads", 3000, 150, marks=pytest.mark.ci), RAY],
)
def test_a_run_that_is_killed_is_resumed_with_every_example_used_once(
    tmp_path: Path, driver: str, batches: int, every: int
) -> None:
    numbers = np.arange(4.0 * batches)
    np.savez(tmp_path / "data.npz", x=np.stack([numbers**0, numbers, numbers**2], axis=1))
    (tmp_path / "count.gc").write_text(PROGRAM)
    strategy = "parameter_server(3, 2, staleness=none)"
    words: list[object] = ["run", tmp_path / "count.gc", "--strategy", strategy]
    words += ["--driver", driver, "--json", "--checkpoint", tmp_path / "run"]
    words += ["--checkpoint-every", every, "--keep", 2]
    deadline = time.monotonic() + 240
    with started(*words) as killed:
        try:
            while not list(tmp_path.glob("run/step-*")):
                assert killed.poll() is None, "it ended before it was killed"
                assert time.monotonic() < deadline, "no checkpoint was written"
                time.sleep(0.005)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(killed.pid, signal.SIGKILL)
        assert killed.wait() == -signal.SIGKILL
    end = tmp_path / "end.safetensors"
    with started(*words, "--resume", tmp_path / "run", "--save", end) as resumed:
        try:
            out = resumed.communicate(timeout=240)[0]
        finally:
            with suppress(ProcessLookupError):
                os.killpg(resumed.pid, signal.SIGKILL)
    found = json.loads(out.splitlines()[-1])
    assert found["steps"] == batches
    assert sum(found["workers"].values()) < batches, "it was not resumed"
    assert load_file(end)["seen"].tolist() == [x.sum() for x in (numbers**0, numbers, numbers**2)]
