"""Parsers whose tables come from the disk: they parse and refuse as those that were just made."""

from __future__ import annotations

from pathlib import Path

import lark
import pytest

from graphc.support import config
from graphc.support.errors import GraphcError
from graphc.syntax import lark_parser, parse

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted((ROOT / "examples").glob("*.gc"))
REFUSED = sorted((ROOT / "tests" / "errors").glob("*.gc"))


def outcomes() -> list[str]:
    """What each program is, or the whole error of it."""
    parse.parser.cache_clear()
    parse._signs.cache_clear()
    found = []
    for path in (*PROGRAMS, *REFUSED):
        try:
            found.append(repr(parse.parse_file(path)))
        except GraphcError as error:
            found.append(error.render())
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(lark_parser.config, "cache_folder", lambda: tmp_path)
    assert config.cache_folder() == tmp_path
    return tmp_path / "objects"


def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The grammars that Lark makes tables of from here on."""
    inner, grammars = lark.Lark.__init__, list[str]()

    def init(self: lark.Lark, grammar: str, **options: object) -> None:
        grammars.append(grammar)
        inner(self, grammar, **options)

    monkeypatch.setattr(lark.Lark, "__init__", init)
    return grammars


def test_a_parser_from_the_disk_parses_and_refuses_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grammars = made(monkeypatch)
    first = outcomes()
    assert len(grammars) == 1 and len(list(folder.glob("*.o"))) == 1
    assert outcomes() == first
    assert len(grammars) == 1  # the second time it was read


def test_tables_of_another_grammar_and_damaged_ones_are_not_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grammar, grammars = 'start: "a" | "b"', made(monkeypatch)
    lark_parser.lalr_parser(grammar, None)
    (file,) = folder.glob("*.o")
    lark_parser.lalr_parser(grammar.replace("b", "c"), None).parse("c")
    assert len(grammars) == 2
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)
    lark_parser.lalr_parser(grammar, None).parse("b")
    assert len(grammars) == 3
