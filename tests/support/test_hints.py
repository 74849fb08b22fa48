"""The hints for what users of other libraries write: tables of a file."""

from __future__ import annotations

import tomllib
from collections import Counter

import pytest

from graphc.support import hints

TABLES = tomllib.loads(hints.FILE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("place", TABLES)
def test_each_name_has_one_hint_in_a_place(place: str) -> None:
    names = Counter(name for key in TABLES[place] for name in key.split())
    assert [name for name, n in names.items() if n > 1] == []
    assert set(hints.hints(place)) == set(names)


@pytest.mark.parametrize("place", TABLES)
def test_each_hint_stands_once_in_a_place(place: str) -> None:
    given = Counter(hint for hint in TABLES[place].values() if hint)
    assert [hint for hint, n in given.items() if n > 1] == []
