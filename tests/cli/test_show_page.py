"""graphc show --format html: one page as a file."""

from __future__ import annotations

import json
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


@pytest.mark.ci
def test_the_times_of_a_profile_are_on_the_page(folder: Path, call: Call) -> None:
    printed = call("profile", "line.gc", "--steps", "2", "--json")
    assert printed.status == 0, printed.err
    (folder / "times.json").write_text(printed.out)
    result = call("show", "line.gc", "--format", "html", "--profile", "times.json")
    assert result.status == 0, result.err
    text = (folder / "line.html").read_text().split('id="data">')[1].split("</script>")[0]
    data = json.loads(text)
    found = data["measured"]
    assert found["seconds"] > 0 and all(seconds >= 0 for _, seconds, _, _ in found["kernels"])
    ran = {tuple(names) for _, _, names, _ in data["execution"]["entries"]}
    assert {tuple(names) for names, *_ in found["kernels"]} & ran
    assert {file for file, _, _ in found["lines"]} == {0}


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "not JSON", "1e999", "[" * 100_000, '{"kernel": [{}], "line": []}',
     '{"kernel": [{"nodes": ["a"], "seconds": NaN, "limit": null, "bound": ""}], "line": []}'],
)  # fmt: skip
def test_what_is_no_profile_is_refused(folder: Path, call: Call, text: str) -> None:
    (folder / "times.json").write_text(text)
    result = call("show", "line.gc", "--format", "html", "--profile", "times.json")
    assert result.status != 0
    assert "it is not what `graphc profile --json` prints" in result.err
    assert not list(folder.glob("*.html"))


def test_a_profile_of_another_strategy_is_refused(folder: Path, call: Call) -> None:
    times = {"kernel": [], "line": [], "name": "line", "strategy": "zero(8)", "median_seconds": 1}
    (folder / "times.json").write_text(json.dumps(times))
    result = call("show", "line.gc", "--format", "html", "--profile", "times.json")
    assert "is a profile of line under zero(8), not of line under mirrored(2)" in result.err
    assert "--profile belongs to the page" in call("show", "line.gc", "--profile", "x").err


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
