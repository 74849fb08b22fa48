"""A run goes on, and its results are right, whatever is wrong with the cache."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from graphc.support.object_cache import Objects

pytest.importorskip("llvmlite")
pytestmark = pytest.mark.skipif(os.name != "posix", reason="limits and signals of POSIX")

RUN = """
import resource, sys
if len(sys.argv) > 1:  # no file may be longer: what a full disk says, and what was written stays
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
import numpy as np
import graphc

def loss(p, b):
    return np.mean((np.tanh(b["x"] @ p["w"]) - b["y"]) ** 2)

params = {"w": np.full((4, 3), 0.5, np.float32)}
batch = {"x": np.ones((8, 4), np.float32), "y": np.zeros((8, 3), np.float32)}
with graphc.compile(loss, params, batch, optimizer=graphc.optim.sgd(0.1)) as step:
    for _ in range(3):
        step.step(batch)
    print(step.params_sha256())
"""


def ran(cache: str | None, *words: str, **env: str | None) -> tuple[str, str]:
    """(what a run in a process of its own prints, and its warnings)."""
    found = os.environ | {"GRAPHC_CACHE": cache} | env
    kept = {k: v for k, v in found.items() if v is not None}
    command = [sys.executable, "-c", RUN, *words]
    done = subprocess.run(command, capture_output=True, text=True, env=kept, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def right() -> str:
    """The result without a cache."""
    return ran("0")[0]


def test_a_full_disk_is_no_error(tmp_path: Path, right: str) -> None:
    assert ran(str(tmp_path / "cache"), "600") == (right, "")
    assert ran(str(tmp_path / "cache")) == (right, "")  # and what it has left is not believed


def test_a_cache_that_is_no_folder_is_told_of_once(tmp_path: Path, right: str) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", Path("/proc/no/such")):
        out, err = ran(str(place))
        assert out == right and err.count("warning[G0708]") == 1 and "Traceback" not in err


def test_a_missing_home_is_no_error(tmp_path: Path, right: str) -> None:
    for home in ("/dev/null", None):
        out, err = ran(None, HOME=home, XDG_CACHE_HOME=None)
        assert (out, err) == (right, "")


@pytest.mark.skipif(os.name == "posix" and os.getuid() == 0, reason="root may write everywhere")
def test_a_read_only_cache_is_told_of_once(tmp_path: Path, right: str) -> None:
    base = tmp_path / "cache"
    (base / "objects").mkdir(parents=True)
    (base / "objects").chmod(0o500)
    out, err = ran(str(base))
    assert out == right and err.count("warning[G0708]") == 1


def test_damaged_objects_are_made_again(tmp_path: Path, right: str) -> None:
    """One is changed, one cut off, one empty; then each is another one's."""
    cache, rng = tmp_path / "cache", random.Random(0)
    ran(str(cache))
    whole = {p: p.read_bytes() for p in (cache / "objects").glob("*.o")}
    assert len(whole) >= 3  # the plan, the lowered program, its machine code
    for way, (p, data) in enumerate(whole.items()):
        at = rng.randrange(len(data))
        flipped = data[:at] + bytes([data[at] ^ 255]) + data[at + 1 :]
        p.write_bytes((flipped, data[:at], b"")[way % 3])
    assert ran(str(cache)) == (right, "")
    assert all(Objects.at(cache).read(p.stem) is not None for p in whole)
    names = list(whole)
    for p, other in zip(names, names[1:] + names[:1], strict=True):
        p.write_bytes(whole[other])  # whole, but another one's
    assert ran(str(cache)) == (right, "")


@pytest.mark.slow
def test_runs_that_are_killed_while_they_write_leave_a_cache_that_is_right(
    tmp_path: Path, right: str
) -> None:
    cache, rng = tmp_path / "cache", random.Random(1)
    env = os.environ | {"GRAPHC_CACHE": str(cache)}
    for _ in range(20):
        shutil.rmtree(cache, ignore_errors=True)
        command = [sys.executable, "-c", RUN]
        two = [subprocess.Popen(command, stdout=subprocess.PIPE, env=env) for _ in range(2)]
        while not list(cache.rglob("*")) and any(x.poll() is None for x in two):
            time.sleep(0.001)
        time.sleep(rng.random() / 5)
        for x in two:
            x.send_signal(signal.SIGKILL)
            x.communicate()
        assert ran(str(cache)) == (right, "")
