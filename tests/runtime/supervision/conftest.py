"""Real jobs: the launcher in a process group of its own, with a deadline, and nothing left over."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from graphc.runtime.supervision.job import mpi_launcher
from graphc.runtime.supervision.local_processes import OF_MPI, SHARED, state
from graphc.support.errors import GraphcError

HERE = Path(__file__).parent
LONGEST = 60.0  # seconds that any job may take


@dataclass
class Ended:
    """How the launcher of a job ended: its status, what it printed, and the loss that it named."""

    status: int
    out: str
    err: str
    seconds: float  # from `since` to the end
    lost: dict[str, Any] = field(default_factory=dict)


class RunningJob:
    """A job of stand-ins under a launcher. `pids` are its processes, by number."""

    def __init__(self, folder: Path, count: int, launch: dict[str, Any], stand_in: Any) -> None:
        self.folder, self.count = folder, count
        self.before = shared_files()
        folder.mkdir()
        options = {"count": count, **launch}, {"steps": 10**9, "pids": str(folder), **stand_in}
        self.launcher = subprocess.Popen(
            [sys.executable, HERE / "launch_stand_in.py", *map(json.dumps, options)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        self.since = time.time()

    def pid(self, process: int) -> int:
        file, limit = self.folder / str(process), time.monotonic() + LONGEST
        while not (file.exists() and (text := file.read_text())):
            assert self.launcher.poll() is None, self.launcher.communicate()
            assert time.monotonic() < limit
            time.sleep(0.02)
        return int(text)

    @property
    def pids(self) -> list[int]:
        return [self.pid(process) for process in range(self.count)]

    def wait_for_step(self, number: int = 2) -> None:
        """Wait until process 0 has made some steps."""
        file, limit = self.folder / "step", time.monotonic() + LONGEST
        while not (file.exists() and int(file.read_text() or 0) >= number):
            assert self.launcher.poll() is None, self.launcher.communicate()
            assert time.monotonic() < limit
            time.sleep(0.02)

    def kill(self, pid: int, number: int = signal.SIGKILL) -> None:
        """Send a signal to a living process; its end is measured from now."""
        found = state(pid)
        assert found is not None and found.letter not in "ZX", "it is dead already"
        self.since = time.time()
        os.kill(pid, number)

    def end(self) -> Ended:
        """Wait for the end, and check that nothing is left."""
        pids = self.pids
        out, err = self.launcher.communicate(timeout=LONGEST)
        ended = Ended(self.launcher.returncode, out, err, time.time() - self.since)
        for line in re.findall(r"^LOST (.*)$", err, re.MULTILINE):
            ended.lost = json.loads(line)
        limit = time.monotonic() + (2.0 if ended.status < 0 else 0.5)
        while (left := self.left(pids)) and time.monotonic() < limit:
            time.sleep(0.02)
        assert not left, f"{left}\n{out}\n{err}"
        return ended

    def left(self, pids: list[int]) -> list[str]:
        alive = [(pid, state(pid)) for pid in pids]
        found = [f"pid {pid}: {s.letter}" for pid, s in alive if s is not None and s.letter != "Z"]
        return found + sorted(shared_files() - self.before)

    def close(self) -> None:
        """Kill what is left after a test that failed."""
        if self.launcher.poll() is None:
            self.launcher.kill()
            self.launcher.communicate()
        for file in self.folder.iterdir():
            if file.name.isdecimal() and (pid := int(file.read_text() or 0)):
                stat = Path(f"/proc/{pid}/cmdline")
                if stat.exists() and b"stand_in" in stat.read_bytes():
                    os.kill(pid, signal.SIGKILL)


def shared_files() -> set[str]:
    return {f"{SHARED}{n}" for n in os.listdir(SHARED) if n.startswith(OF_MPI)}


Start = Callable[..., RunningJob]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a job; skipped, loudly, where no MPI is installed."""
    try:
        mpi_launcher()
    except GraphcError as error:
        pytest.skip(f"NOT TESTED: jobs under watch: {error.message}; {error.help}")
    begun: list[RunningJob] = []

    def start(count: int = 2, launch: Any = None, **stand_in: Any) -> RunningJob:
        begun.append(RunningJob(tmp_path / f"job{len(begun)}", count, launch or {}, stand_in))
        return begun[-1]

    yield start
    for job in begun:
        job.close()
