"""why: the reason of a node, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


def test_without_a_node_what_sends_is_listed_and_the_rest_counted(folder: Path, call: Call) -> None:
    result = call("why", "line.gc")
    assert result.status == 0, result.err
    assert "all_reduce" in result.out and "bytes are sent by each device in a step" in result.out
    assert "without traffic:" in result.out and "copies of what is made" in result.out
    longer = call("why", "line.gc", "--all").out
    assert "made as" not in result.out and len(longer) > len(result.out)


def test_a_node_is_explained_with_its_line(folder: Path, call: Call) -> None:
    told = json.loads(call("why", "line.gc", "all_reduce", "--json").out)
    text = call("why", "line.gc", f"%{told[0]['node']}").out
    assert "inserted by  partition: data: P -> R" in text and "  at line.gc:" in text
    assert "<- chosen" in text


def test_explanations_are_a_list_in_json(folder: Path, call: Call) -> None:
    told = json.loads(call("why", "line.gc", "--json").out)
    assert all(t["inserted"] and t["because"]["by"] and t["consumers"] for t in told)
    (loss,) = json.loads(call("why", "line.gc", "loss", "--json").out)
    assert not loss["inserted"] and loss["pass"] == "source" and loss["line"]["line"] == 7


@pytest.mark.ci
def test_a_graph_in_text_form_answers_too(folder: Path, call: Call) -> None:
    assert call("show", "line.gc", "-o", "line.gir").status == 0
    assert "all_reduce" in call("why", "line.gir").out
    assert "no pass has inserted" in call("why", "line.gc", "--strategy", "one_device").out


@pytest.mark.parametrize(
    ("status", "message", "words"),
    [
        (1, "error[G0993]: there is no node or op 'los'\n   = help: did you mean loss", ["%los"]),
        (1, "error[G0993]: no node comes from line 16\n", ["line.gc:16"]),
        (1, "there is no program 'tain'", ["--program", "tain"]),
        (1, "error[G0401]", ["--strategy", "miror(2)"]),
    ],
)
def test_wrong_words_are_told_what_there_is(
    folder: Path, call: Call, status: int, message: str, words: list[str]
) -> None:
    result = call("why", "line.gc", *words)
    assert (result.status, result.out) == (status, "") and message in result.err


@pytest.mark.ci
def test_a_plan_has_no_graph(folder: Path, call: Call) -> None:
    assert call("compile", "line.gc").status == 0
    result = call("why", "line.plan")
    assert result.status == 2 and "give its .gc file" in result.err
