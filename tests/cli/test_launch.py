"""`graphc run --launch`: the command that each process runs, and the restarts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from cli.conftest import Call

from graphc.cli.launch import Launchable, launch_options, program, restarted
from graphc.runtime.supervision.local_processes import state
from graphc.runtime.supervision.supervise import ProcessLost
from graphc.support.errors import GraphcError


@click.command("run", cls=Launchable)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--steps", type=int, default=7)
@click.option("--strategy")
@click.option("--resume", type=click.Path(path_type=Path))
@click.option("--load")
@click.option("--transport", "transport_name", default="local")
@click.option("--json", "as_json", is_flag=True)
@click.option("--quiet", is_flag=True)
@launch_options
def run(**options: object) -> None:
    """Stands for the command `run`, with the options that matter here."""


def line(*args: str, resumed: Path | None = None) -> list[str]:
    words = program(run.make_context("run", list(args)), resumed)
    assert words[:6] == [sys.executable, "-m", "graphc", "run", "--transport", "mpi"]
    return words[6:]


def test_each_process_gets_the_options_that_the_user_gave() -> None:
    given = line(
        "--launch=mpi", "-n", "2", "--steps", "3", "--strategy=mirrored(2) * accumulate(2)",
        "--json", "--heartbeat", "3", "--deadline=9", "--restarts", "0", "--hosts", "a,b",
        "--", "-x.gc",
    )  # fmt: skip
    assert given == [
        "--steps", "3", "--strategy", "mirrored(2) * accumulate(2)", "--json", "--", "-x.gc",
    ]  # fmt: skip


def test_a_restart_resumes_from_the_folder_and_from_nowhere_else(tmp_path: Path) -> None:
    given = line("a.gc", "--load", "b.safetensors", "--steps", "3", resumed=tmp_path)
    assert given == ["--resume", str(tmp_path), "--steps", "3", "--", "a.gc"]
    given = line("a.gc", "--resume", "b.safetensors", resumed=tmp_path)
    assert given == ["--resume", str(tmp_path), "--", "a.gc"]


def lost() -> ProcessLost:
    error = ProcessLost("G0581", "process 1 on here (pid 7) died by SIGKILL")
    error.add_note("process 0 on here (pid 6): step 3, computing; 2 collectives done")
    return error


def test_a_job_that_loses_a_process_is_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[Path | None] = []

    def job(resumed: Path | None) -> int:
        begun.append(resumed)
        if len(begun) == 2:
            (tmp_path / "step-3").mkdir()
        if len(begun) < 4:
            raise lost()
        return 0

    assert restarted(job, 3, tmp_path) == 0
    assert begun == [None, None, tmp_path, tmp_path]  # nothing to resume from, at first
    said = capsys.readouterr().err.splitlines()
    assert said[:3] == [
        "error[G0581]: process 1 on here (pid 7) died by SIGKILL",
        "   = process 0 on here (pid 6): step 3, computing; 2 collectives done",
        "restart 1 of 3",
    ]


def test_a_job_whose_restarts_are_used_up_is_lost(tmp_path: Path) -> None:
    begun: list[Path | None] = []

    def job(resumed: Path | None) -> int:
        begun.append(resumed)
        raise lost()

    with pytest.raises(ProcessLost):
        restarted(job, 2, tmp_path)
    assert len(begun) == 3


def test_another_error_is_not_tried_again(tmp_path: Path) -> None:
    begun: list[Path | None] = []

    def job(resumed: Path | None) -> int:
        begun.append(resumed)
        return 1

    assert restarted(job, 2, tmp_path) == 1 and len(begun) == 1


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--hosts", "a"], "--hosts is an option of --launch"),
        (["-n", "2"], "-n is an option of --launch"),
        (["--restarts", "2"], "--restarts is an option of --launch"),
        (["--launch", "mpi", "--restarts", "2"], "--restarts needs --checkpoint"),
        (["--launch", "mpi", "--hosts", "a;reboot"], "hosts are names"),
        (["--launch", "mpi", "--hosts", "-oProxyCommand=x"], "hosts are names"),
        (["--launch", "pvm"], "'pvm' is not"),
    ],
)
def test_wrong_use_is_told(args: list[str], message: str) -> None:
    with pytest.raises(click.UsageError, match=message):
        run.main(["a.gc", *args], standalone_mode=False)


def test_a_lost_process_has_a_status_of_its_own() -> None:
    from graphc.cli import LOST, _told

    assert _told(lost()) == LOST == 75


# -- real jobs ------------------------------------------------------------------------------------


@pytest.fixture
def mpi() -> None:
    """Skipped, loudly, where no MPI is installed."""
    from graphc.runtime.supervision.job import mpi_launcher

    try:
        mpi_launcher()
    except GraphcError as error:
        pytest.skip(f"NOT TESTED: graphc run --launch mpi: {error.message}; {error.help}")


def test_a_launched_job_has_the_result_of_threads(mpi: None, process: Call) -> None:
    found = []
    for launch in ((), ("--launch", "mpi", "-n", "2")):
        result = process("run", "line.gc", "--strategy", "mirrored(2)", "--json", *launch)
        assert result.status == 0 and result.err.count("error") == 0, result.err
        found.append(json.loads(result.out))
    one, two = found
    assert (one["processes"], two["processes"]) == (1, 2)
    assert one["params_sha256"] == two["params_sha256"]


def test_a_mistake_in_the_program_ends_a_launched_job_as_any_other(
    mpi: None, process: Call, folder: Path
) -> None:
    (folder / "line.gc").write_text("step line(x: f32[batch]) { loss = y }")
    result = process("run", "line.gc", "--launch", "mpi", "-n", "2")
    assert result.status == 1 and result.err.count("error[") == 1, result.err
    assert result.err.startswith("error[G0")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_launched_job_ends_when_a_process_does(mpi: None, folder: Path, number: int) -> None:
    command = ["run", "line.gc", "--launch", "mpi", "-n", "2", "--steps", "100000000", "--quiet"]
    launcher = subprocess.Popen(
        [sys.executable, "-m", "graphc", *command], stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        pids = in_training(launcher.pid)
        os.kill(pids[1] if number == signal.SIGKILL else launcher.pid, number)
        _, err = launcher.communicate(timeout=60)
    finally:
        launcher.kill()
    if number == signal.SIGINT:
        assert launcher.returncode == 130 and err.startswith("interrupted after step"), err
    else:
        assert launcher.returncode == 75 and f"(pid {pids[1]}, rank 1) died" in err
        assert f"(pid {pids[0]}, rank 0): " in err and "collectives done" in err


def in_training(launcher: int) -> list[int]:
    """The processes of a job, once they train: they have used some processor time by then."""
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        found = [pid for child in children(launcher) for pid in children(child)]
        states = [state(pid) for pid in found]
        if len(found) == 2 and all(s is not None and s.ticks > 130 for s in states):
            return found
        time.sleep(0.05)
    raise AssertionError("the job does not train")


def children(pid: int) -> list[int]:
    return sorted(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
