"""The transport gloo in real jobs of torchrun: the bits are those of threads."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from backends.mpi.test_mpi import STEPS, of_threads, outputs
from runtime.test_processes import STRATEGIES

LONGEST = 120.0  # seconds that a job may take
DIGITS = Path(__file__).parents[3] / "examples" / "digits.gc"

if find_spec("torch") is None:
    pytest.skip("NOT TESTED: jobs of torchrun: torch is not installed", allow_module_level=True)


def job(count: int, *command: Any) -> tuple[int, list[Any], str]:
    """The exit status of a job of torchrun, what it printed as JSON, and its errors."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(count)]
    with subprocess.Popen(
        [*torchrun, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as running:  # fmt: skip
        try:
            out, err = running.communicate(timeout=LONGEST)
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
    return running.returncode, outputs(out), err


@pytest.mark.parametrize("count", [2, 4])
def test_strategies_of_fixed_order_have_the_bits_of_threads(count: int) -> None:
    chosen = [s for s in STRATEGIES if "reproducible" in s]
    status, found, err = job(count, STEPS, "gloo", *chosen)
    assert status == 0, err
    assert found == [[*map(of_threads, chosen)]] * count


def test_all_processes_have_the_same_bits_under_every_strategy() -> None:
    status, found, err = job(2, STEPS, "gloo", *STRATEGIES)
    assert status == 0, err
    assert found[0] == found[1]


@pytest.mark.parametrize("process", [0, 1])
def test_a_bad_batch_of_one_process_fails_in_all_and_leaves_them_usable(process: int) -> None:
    status, found, err = job(2, STEPS, "gloo", "wrong", process)
    assert status == 0, err
    assert found[0] == found[1] and found[0][:2] == ["G0506", 2]


def test_the_command_line_trains_one_model() -> None:
    command = ("-m", "graphc", "run", DIGITS, "--transport", "gloo", "--epochs", 2, "--json")
    status, (report,), err = job(2, *command, "--strategy", "mirrored(2) * reproducible(8)")
    assert status == 0, err
    assert (report["processes"], report["hosts"], report["devices"]) == (2, 1, 2)
    program = [sys.executable, "-m", "graphc", "run", DIGITS, "--epochs", "2", "--json"]
    alone = subprocess.run(
        [*program, "--strategy", "reproducible(8)"], capture_output=True, text=True, check=True
    )
    assert report["params_sha256"] == json.loads(alone.stdout)["params_sha256"]


def test_another_transport_is_refused_in_a_job_of_torchrun() -> None:
    status, _, err = job(2, "-m", "graphc", "run", DIGITS, "--epochs", 1)
    assert status != 0 and "G0565" in err and "--transport gloo" in err


def test_an_error_ends_all_processes() -> None:
    command = ("-m", "graphc", "run", DIGITS, "--transport", "gloo", "--strategy", "mirrored(3)")
    status, _, err = job(2, *command)
    assert status != 0 and err.count("G0702") == 1, err
