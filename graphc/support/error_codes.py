"""Error codes: what `error_codes.toml` says of each, read when the first one is asked for."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

FILE: Final = Path(__file__).with_suffix(".toml")


class Entry(NamedTuple):
    """One error: a title of a few words, and the explanation that `graphc explain` prints."""

    title: str
    text: str


@lru_cache(maxsize=1)
def codes() -> Mapping[str, Entry]:
    """Every code, such as G0203, with its entry; in the order of the codes."""
    tables = _tables()
    return {code: Entry(**tables[code]) for code in sorted(tables) if code != "families"}


def families() -> Mapping[str, str]:
    """What the first letters of codes stand for: `G01` -> `language`."""
    return _tables()["families"]


@lru_cache(maxsize=1)
def _tables() -> dict[str, dict[str, str]]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))
