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
from two_hosts import NoHosts, TwoHosts, two_hosts

from graphc.runtime.supervision.job import mpi_launcher
from graphc.runtime.supervision.local_processes import SharedFile, shared_memory, state
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

    def __init__(
        self, folder: Path, count: int, launch: dict[str, Any], stand_in: Any,
        hosts: TwoHosts | None = None,
    ) -> None:  # fmt: skip
        self.folder, self.count = folder, count
        prefix, variables = ([], {}) if hosts is None else (hosts.here, hosts.variables)
        if hosts is not None:
            self.count, launch = 2 * count, {"hosts": hosts.addresses, **launch}
        self.shared: set[SharedFile] = set()  # that its processes have had
        folder.mkdir()
        options = {"count": count, **launch}, {"steps": 10**9, "pids": str(folder), **stand_in}
        self.launcher = subprocess.Popen(
            [*prefix, sys.executable, HERE / "launch_stand_in.py", *map(json.dumps, options)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            env={**os.environ, **variables},
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
        for process in self.pids:
            self.shared |= shared_memory(process)
        self.since = time.time()
        os.kill(pid, number)

    def end(self, within: float = 1.0) -> Ended:
        """Wait for the end, and check that nothing is left of it `within` seconds later."""
        pids = self.pids
        out, err = self.launcher.communicate(timeout=LONGEST)
        ended = Ended(self.launcher.returncode, out, err, time.time() - self.since)
        for line in re.findall(r"^LOST (.*)$", err, re.MULTILINE):
            ended.lost = json.loads(line)
        limit = time.monotonic() + within
        while (left := self.left(pids)) and time.monotonic() < limit:
            time.sleep(0.02)
        assert not left, f"{left}\n{out}\n{err}"
        return ended

    def left(self, pids: list[int]) -> list[str]:
        alive = [(pid, state(pid)) for pid in pids]
        found = [f"pid {pid}: {s.letter}" for pid, s in alive if s is not None and s.letter != "Z"]
        return found + [file.path for file in self.shared if os.path.exists(file.path)]

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


Start = Callable[..., RunningJob]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a job; skipped, loudly, where no MPI is installed."""
    try:
        mpi_launcher()
    except GraphcError as error:
        pytest.skip(f"NOT TESTED: jobs under watch: {error.message}; {error.help}")
    begun: list[RunningJob] = []

    def start(
        count: int = 2, launch: Any = None, hosts: TwoHosts | None = None, **stand_in: Any
    ) -> RunningJob:
        begun.append(
            RunningJob(tmp_path / f"job{len(begun)}", count, launch or {}, stand_in, hosts)
        )
        return begun[-1]

    yield start
    for job in begun:
        job.close()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[TwoHosts]:
    """Two hosts; skipped, loudly, where this machine can't make them."""
    try:
        with two_hosts(tmp_path) as made:
            yield made
    except NoHosts as error:
        pytest.skip(f"NOT TESTED: several hosts: {error}")
