"""diff: the exit status of diff(1), and every form of input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


@pytest.fixture
def pair(folder: Path) -> Path:
    """Beside line.gc, other.gc with another learning rate."""
    text = (folder / "line.gc").read_text()
    (folder / "other.gc").write_text(text.replace("sgd(0.1)", "sgd(0.2)"))
    return folder


def test_the_status_says_whether_something_differs(pair: Path, call: Call) -> None:
    same, other = call("diff", "line.gc", "line.gc"), call("diff", "line.gc", "other.gc")
    assert (same.status, other.status) == (0, 1) and other.err == ""
    assert same.out == "line.gc and line.gc are the same\n"
    assert "other.gc:10  minimize loss with sgd(0.2)" in other.out
    broken = call("diff", "line.gc", "none.gc")
    assert broken.status == 2 and "error[G0106]: cannot read none.gc" in broken.err


def test_one_file_under_two_strategies(folder: Path, call: Call) -> None:
    result = call("diff", "line.gc", "--strategy", "one_device", "--strategy", "zero(2, 3)")
    assert result.status == 1 and result.out.startswith("- one_device\n+ zero(2, 3)\n")
    assert "{data:S(0)}" in result.out and "all_gather" in result.out
    told = json.loads(
        call(
            "diff", "line.gc", "--strategy", "mirrored(2)", "--strategy", "mirrored(2)", "--json"
        ).out
    )
    assert told["equal"] and not told["nodes"] and told["totals"]


def test_the_difference_has_a_page(folder: Path, call: Call) -> None:
    words = "--strategy", "one_device", "--strategy", "zero(2, 3)", "--page", "d.html"
    result = call("diff", "line.gc", *words)
    assert result.status == 1 and "wrote d.html" in result.err
    page = (folder / "d.html").read_text()
    assert "zero(2, 3)" in page and "The second graph." in page
    call("compile", "line.gc", "-o", "line.plan")
    plans = call("diff", "line.plan", "line.plan", "--page", "p.html")
    assert plans.status == 2 and "no graph to draw" in plans.err and not Path("p.html").exists()


@pytest.mark.parametrize("words", [["line.gc"], ["line.gc", "--strategy", "mirrored(2)"],
                                   ["line.gc", "line.gc", *["--strategy", "mirrored(2)"] * 3]])  # fmt: skip
def test_there_must_be_two_to_compare(folder: Path, call: Call, words: list[str]) -> None:
    result = call("diff", *words)
    assert result.status == 2 and "give two files, or one file and --strategy twice" in result.err


@pytest.mark.ci
def test_plans_and_graphs_in_text_form_are_compared(pair: Path, call: Call) -> None:
    for name in ("line", "other"):
        assert call("compile", f"{name}.gc").status == 0
        assert call("show", f"{name}.gc", "-o", f"{name}.gir").status == 0
    assert call("diff", "line.gc", "line.plan").status == 0
    assert call("diff", "line.gir", "line.gir").status == 0
    assert "const" in call("diff", "line.gir", "other.gir").out
    wider = call("diff", "line.plan", "line.gc", "--strategy", "mirrored(4)")
    assert wider.status == 1 and "devices" in wider.out and "2 -> 4" in wider.out
