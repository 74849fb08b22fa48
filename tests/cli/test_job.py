"""Commands in several processes: whether these were started alike."""

from __future__ import annotations

from typing import Any

import pytest
from runtime.test_processes import in_processes

from graphc.cli.job import _words
from graphc.cli.run import run_command
from graphc.runtime.machine.jobs import check_same_command
from graphc.support.errors import GraphcError

LINE = ["a.gc", "--steps", "5", "--quiet", "--max-bytes", "1GB"]


def words(*line: str) -> dict[str, str]:
    return _words(run_command.make_context("run", list(line)))


def told(*lines: list[str]) -> list[str]:
    """What processes with these command lines say, in each of them."""

    def work(transport: Any, process: int) -> str:
        try:
            check_same_command(transport.processes(), words(*lines[process]))
        except GraphcError as error:
            return f"{error.code} {error.message}"
        return ""

    return in_processes(len(lines), work)


def test_what_the_user_wrote_has_the_names_that_it_has_on_the_line() -> None:
    found = words(*LINE, "--strategy", "mirrored(2)")
    assert found == {
        "the command": "run", "FILE": "a.gc", "--steps": "5", "--strategy": "mirrored(2)",
    }  # fmt: skip


def test_processes_of_one_line_go_on_and_may_have_memory_of_their_own() -> None:
    assert told(LINE, LINE, [*LINE[:3], "--max-bytes", "2GB"]) == [""] * 3


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (
            ["b.gc", "--steps", "5"],
            "process 1 was started with FILE b.gc, process 0 with FILE a.gc",
        ),
        (["a.gc"], "process 1 was started with no --steps, process 0 with --steps 5"),
        (
            ["a.gc", "--steps", "5", "--save", "x.safetensors"],
            "process 1 was started with --save x.safetensors, process 0 with no --save",
        ),
    ],
)
def test_processes_of_different_lines_all_say_which_and_how(other: list[str], text: str) -> None:
    assert told(LINE, other) == [f"G0567 {text}"] * 2


def test_another_command_is_told_by_its_name() -> None:
    with pytest.raises(GraphcError, match="with the command evaluate, process 0 with the command"):
        processes: Any = type("P", (), {"count": 2})()
        processes.all_gather = lambda data: [data, data.replace(b"run", b"evaluate")]
        check_same_command(processes, words("a.gc"))
