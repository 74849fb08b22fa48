"""Real jobs of MPI: started by mpiexec in a process group of their own, with a deadline."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from graphc.runtime.supervision.job import HostLayout, mpi_launcher
from graphc.support.errors import GraphcError

LONGEST = 1200.0  # seconds of a job: ten times what the longest takes on a busy machine
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
Job = Callable[..., "EndedJob"]


@dataclass
class EndedJob:
    status: int
    out: str
    err: str


@pytest.fixture(scope="session")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """job(n, *command) runs Python with these arguments in n processes."""
    try:
        launcher = mpi_launcher()
    except GraphcError as error:
        pytest.skip(f"NOT TESTED: jobs of MPI: {error.message}; {error.help}")

    def run(count: int, *command: Any, start: Callable[[Any], None] | None = None) -> EndedJob:
        environment = {**os.environ, **ROOT, "OPENBLAS_NUM_THREADS": "1"}
        program = [sys.executable, *map(str, command)]
        line = launcher.command(program, HostLayout((), count), environment)
        with subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True, env=environment,
        ) as running:  # fmt: skip
            try:
                if start is not None:
                    start(running)
                out, err = running.communicate(timeout=LONGEST)
            finally:
                if running.poll() is None:
                    os.killpg(running.pid, signal.SIGKILL)
        return EndedJob(running.returncode, out, err)

    return run


@pytest.fixture
def graphc_run(job: Job) -> Job:
    """graphc_run(n, *arguments) is `graphc run ... --transport mpi` in n processes."""
    digits = Path(__file__).parents[3] / "examples" / "digits.gc"

    def run(count: int, *options: Any, **more: Any) -> EndedJob:
        return job(count, "-m", "graphc", "run", digits, "--transport", "mpi", *options, **more)

    return run
