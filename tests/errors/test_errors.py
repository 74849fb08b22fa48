"""Every .gc file here is refused, at the line that says so and with the words it gives.

The failing line ends in `# ERROR: CODE part of the message`, and, after a `|`, part of the help.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from graphc.support.errors import GraphcError, codes, has_entry
from graphc.syntax.parse import parse_file

# What no file of text can show: a file too large, and one that is no text.
ELSEWHERE = {"G0105", "G0106"}
FILES = sorted(Path(__file__).parent.glob("*.gc"))
MARK = re.compile(r"# ERROR: (G\d{4}) (.*)")


def compile_file(path: Path) -> None:
    """Parse and, where that succeeds, lower."""
    parse_file(path)
    from graphc.frontend.language.load import load_module

    load_module(path, {"batch": 8})


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_error_has_its_code_place_words_and_help(path: Path) -> None:
    marks = [
        (number, found)
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1)
        if (found := MARK.search(line))
    ]
    assert len(marks) == 1, "one ERROR mark a file"
    line, mark = marks[0]
    message, _, help = mark.group(2).partition(" | ")
    with pytest.raises(GraphcError) as caught:
        compile_file(path)
    error = caught.value
    assert error.span is not None
    assert (error.code, error.span.line) == (mark.group(1), line), error.render()
    assert message in error.message
    assert help in (error.help or "")
    assert "^" in error.render()


def test_every_code_of_the_syntax_has_a_file() -> None:
    shown = {found.group(1) for p in FILES if (found := MARK.search(p.read_text("utf-8")))}
    syntax = {code for code in codes() if "G0101" <= code < "G0120"}
    assert syntax - shown <= ELSEWHERE


def test_a_code_has_an_entry_if_the_table_has_one() -> None:
    assert all(map(has_entry, codes()))
    assert not any(map(has_entry, ("G0000", "G02", "G01", "")))
