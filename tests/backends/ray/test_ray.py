"""Asynchronous runs on a real Ray: killed processes, and nothing lost or applied twice."""

from __future__ import annotations

import json
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HERE = Path(__file__).parent
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
pytestmark = [
    pytest.mark.skipif(
        find_spec("ray") is None,
        reason="RAY IS NOT INSTALLED, so its driver is not tested: pip install 'graphc[ray]'",
    ),
]


@contextmanager
def started(*command: str | Path, **settings: str) -> Iterator[subprocess.Popen[str]]:
    """A process in a group of its own, which is gone with all others of it in the end."""
    words = [sys.executable, "-W", "ignore", *map(str, command)]
    pipe: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    pipe["env"] = os.environ | settings
    with subprocess.Popen(words, start_new_session=True, **pipe) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def output(*command: str | Path, seconds: float = 240, **settings: str) -> str:
    with started(*command, **settings) as process:
        out, err = process.communicate(timeout=seconds)
        assert process.returncode == 0, err
        return out


def killed_run(seed: int, kills: int, pushes: int, folder: Path, seconds: float = 240) -> Any:
    words = HERE / "killed_run.py", str(seed), str(kills), str(pushes), folder
    found = json.loads(output(*words, seconds=seconds).splitlines()[-1])
    assert len(found["killed"]) == kills
    assert found["steps"] == pushes
    assert found["batches"], "a batch is missing, or was applied twice"
    assert found["examples"] == pushes * 8, "the variables have seen other pushes"
    assert found["staleness"] <= 2
    assert found["same"], "the replay in one process gives other bits"
    return found


def roles_of(pid: int) -> list[str]:
    """The processes of roles that a process has started."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getsid(int(entry.name)) == pid:
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                words = (entry / "cmdline").read_text().strip("\0")
                found += [words] if state != "Z" and "RoleActor" in words else []
        except OSError:
            continue
    return found


@pytest.mark.ci
def test_a_run_whose_servers_and_workers_are_killed_replays_to_the_same_bits(
    tmp_path: Path,
) -> None:
    found = killed_run(1, 6, 60, tmp_path)
    kinds = {role.partition(".")[0] for role in found["killed"]}
    assert kinds == {"server", "worker"}
    assert found["workers"] > 2
    assert set(found["addresses"]) <= LOOPBACK


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(2, 12))
def test_runs_with_a_hundred_kills_replay_to_the_same_bits(seed: int, tmp_path: Path) -> None:
    killed_run(seed, 10, 150, tmp_path, seconds=600)


@pytest.mark.ci
def test_no_role_outlives_a_trainer_that_is_killed(tmp_path: Path) -> None:
    """Ray's own agents take up to a minute to notice; the group is killed after that."""
    with started(HERE / "killed_run.py", "1", "0", "2000", tmp_path) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["pid"] == process.pid
        deadline = time.monotonic() + 120
        while not roles_of(process.pid):
            assert time.monotonic() < deadline, "no role has started"
            time.sleep(0.1)
        process.kill()
        process.wait()
        while left := roles_of(process.pid):
            assert time.monotonic() < deadline, left
            time.sleep(0.1)


@pytest.mark.ci
def test_an_error_of_a_step_names_its_worker_and_leaves_a_usable_trainer(tmp_path: Path) -> None:
    found = json.loads(output(HERE / "failing_run.py").splitlines()[-1])
    assert found["code"] == "G0613"
    assert "'x' has shape" in found["message"]
    assert any("in worker." in note and "batch 4" in note for note in found["notes"])
    assert found["before"] == found["counted"] >= 4
    assert found["after"] == found["before"] + 3


@pytest.mark.ci
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_work_in_progress(tmp_path: Path, number: int) -> None:
    """Ctrl-C reaches all processes of a terminal's group, a SIGTERM the one that it is for: Ray's
    own processes end at a SIGTERM."""
    x = np.ones((40_000, 6), np.float32)
    np.savez(tmp_path / "data.npz", x=x, y=x[:, :2])
    (tmp_path / "model.gc").write_text(PROGRAM)
    strategy, folder = "parameter_server(2, 1, staleness=2)", tmp_path / "run"
    words = ("-m", "graphc", "run", tmp_path / "model.gc", "--strategy", strategy, "--json")
    saving = ("--checkpoint", folder, "--checkpoint-every", "20", "--driver", "ray")
    with started(*words, *saving) as process:
        deadline = time.monotonic() + 120
        while not list(folder.glob("step-*")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        err = process.communicate(timeout=120)[1]
    assert process.returncode == 128 + number, err
    assert "Traceback" not in err
    newest = sorted(folder.glob("step-*"))[-1]
    with_it = json.loads(output(*words, "--resume", newest, "--steps", newest.name[5:]))
    assert with_it["steps"] == int(newest.name[5:]) < 5000


PROGRAM = """
step model(x: f32[batch, 6], y: f32[batch, 2]) {
    param w: f32[6, 2] = he_normal()
    minimize mse(x @ w, y) with adam(0.01)
}
data train = npz("data.npz", batch=8, shuffle(seed=0))
"""


def command(folder: Path) -> tuple[str | Path, ...]:
    """Runs a small program, which is written into a folder."""
    x = np.random.default_rng(0).normal(size=(160, 6)).astype(np.float32)
    np.savez(folder / "data.npz", x=x, y=x[:, :2])
    (folder / "model.gc").write_text(PROGRAM)
    strategy = "parameter_server(2, 1, staleness=2)"
    return "-m", "graphc", "run", folder / "model.gc", "--strategy", strategy, "--json"


@pytest.mark.ci
def test_the_command_line_runs_on_ray_and_replays_in_threads(tmp_path: Path) -> None:
    words, schedule = command(tmp_path), tmp_path / "run.sched"
    first = json.loads(output(*words, "--driver", "ray", "--record", schedule))
    again = json.loads(output(*words, "--replay", schedule))
    assert first["steps"] == 20
    assert first["params_sha256"] == again["params_sha256"]
    assert first["staleness"] == again["staleness"]


@contextmanager
def cluster(folder: Path, token: str) -> Iterator[str]:
    """The address of a cluster of one node, on loopback."""
    address = f"127.0.0.1:{random.randrange(20000, 30000)}"
    words = ("-m", "ray.scripts.scripts", "start", "--head", "--block", "--num-cpus=3")
    words += ("--node-ip-address=127.0.0.1", "--port", address.partition(":")[2])
    words += ("--include-dashboard=false", "--object-store-memory=100000000")
    words += ("--temp-dir", str(folder))
    with started(*words, **LONELY, RAY_AUTH_TOKEN=token) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "Ray runtime started" in line:
                break
        yield address


LONELY = {
    "RAY_AUTH_MODE": "token",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}


@pytest.mark.ci
def test_a_run_on_a_cluster_needs_its_token(tmp_path: Path) -> None:
    token, schedule = secrets.token_hex(32), tmp_path / "run.sched"
    short = Path(tempfile.mkdtemp(prefix="ray-"))  # paths of sockets are short
    try:
        with cluster(short, token) as address:
            words = command(tmp_path)
            on_it = (*words, "--driver", "ray", "--driver-address", address)
            journals = ("--journals", tmp_path / "journals", "--record", schedule)
            mine = {"RAY_AUTH_TOKEN": token} | LONELY
            first = json.loads(output(*on_it, *journals, **mine))
            again = json.loads(output(*words, "--replay", schedule))
            assert first["params_sha256"] == again["params_sha256"]
            assert list((tmp_path / "journals").iterdir()) == []
            other = {"RAY_AUTH_TOKEN": secrets.token_hex(32)} | LONELY
            with started(*on_it, **other) as refused:
                err = refused.communicate(timeout=120)[1]
            assert refused.returncode == 1
            assert f"error[G0577]: no Ray at {address}" in err
    finally:
        shutil.rmtree(short, ignore_errors=True)
