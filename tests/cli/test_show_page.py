"""graphc show --format html: one page as a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


def test_a_page_is_named_after_the_file(folder: Path, call: Call) -> None:
    result = call("show", "line.gc", "--format", "html")
    assert result.status == 0, result.err
    assert "wrote line.html" in result.err and result.out == ""
    assert (folder / "line.html").read_text().startswith("<!DOCTYPE html>")


def test_a_page_goes_where_it_is_asked_to_and_opens_at_a_pass(folder: Path, call: Call) -> None:
    given = "--after", "fuse", "--level", "ops", "-o", "x.html"
    result = call("show", "line.gc", "--format", "html", *given)
    assert result.status == 0, result.err
    assert '"after":"fuse","level":"ops"' in (folder / "x.html").read_text()
    assert not (folder / "line.html").exists()


def test_a_graph_in_text_form_has_a_page(folder: Path, call: Call) -> None:
    (folder / "line.gir").write_text(call("show", "line.gc").out)
    assert call("show", "line.gir", "--format", "html").status == 0
    assert (folder / "line.html").exists()


@pytest.mark.parametrize(
    "given, told",
    [
        (("line.gc", "--after", "nothing"), "no pass 'nothing' ran; known: source, "),
        (("line.gc", "--diff"), "the page has all passes and kernels"),
        (("line.gc", "--kernels"), "the page has all passes and kernels"),
        (("line.gc", "--program", "nobody"), "there is no program 'nobody'"),
        (("line.gc", "-o", "missing/x.html"), "can't write missing/x.html"),
        (("line.plan",), "a plan has instructions, and no graph"),
    ],
)
def test_a_page_that_can_not_be_made_is_explained(
    folder: Path, call: Call, given: tuple[str, ...], told: str
) -> None:
    result = call("show", *given, "--format", "html")
    assert result.status != 0
    assert told in result.err
    assert not list(folder.rglob("*.html"))
