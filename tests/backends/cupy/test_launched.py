"""`graphc run --launch mpi --backend cupy`: real processes of MPI, each with a GPU that a stand-in
plays; another one plays NCCL between them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from backends.cupy.stand_in_nccl_far import served

from graphc.runtime.supervision.job import mpi_launcher
from graphc.support.errors import GraphcError

ROOT = Path(__file__).parents[3]
JOB = "--backend", "cupy", "--launch", "mpi", "--heartbeat", "60"
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def graphc(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "graphc", *words]
    paths = [str(folder), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    env = os.environ | AS_ROOT | environment | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What every Python imports first."""
    try:
        mpi_launcher()
    except GraphcError as error:
        pytest.skip(f"NOT TESTED: jobs of MPI: {error.message}; {error.help}")
    if find_spec("mpi4py") is None:
        pytest.skip("NOT TESTED: jobs of MPI: mpi4py is not installed")
    (tmp_path / "sitecustomize.py").write_text("import backends.cupy.stand_in_far_backend\n")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["mirrored(4)", "zero(2, stage=3)"])
def test_a_job_of_mpi_trains_on_a_gpu_per_process(strategy: str, folder: Path) -> None:
    given = "check", "examples/digits.gc", "--bits", "--steps", "3", "--strategy", strategy
    with served() as words:
        job = graphc(folder, *given, *JOB, "-n", "2", **words)
    assert job.returncode == 0, job.stdout + job.stderr
    here = graphc(folder.parent, *given, "--backend", "numpy")
    hashes = [set(re.findall(r"[0-9a-f]{64}", x.stdout)) for x in (job, here)]
    assert hashes[0] == hashes[1] and len(hashes[0]) == 1, job.stdout + here.stdout + job.stderr


@pytest.mark.slow
def test_more_processes_than_gpus_are_refused(folder: Path) -> None:
    given = "run", "examples/digits.gc", "--strategy", "mirrored(3)", "--steps", "1", "--quiet"
    with served() as words:
        job = graphc(folder, *given, *JOB, "-n", "3", **words)
    assert job.returncode == 1 and "G0702" in job.stderr and "3 processes" in job.stderr
