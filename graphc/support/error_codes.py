"""Error codes with their texts from `error_codes.toml`, which is read on first use."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

FILE: Final = Path(__file__).with_suffix(".toml")


class ErrorEntry(NamedTuple):
    """One error code: a short title, and the explanation that `graphc explain` prints."""

    title: str
    text: str


@lru_cache(maxsize=1)
def codes() -> Mapping[str, ErrorEntry]:
    """All codes, such as G0203, with their entries, in order."""
    tables = _tables()
    return {code: ErrorEntry(**tables[code]) for code in sorted(tables) if code != "families"}


def families() -> Mapping[str, str]:
    """The families of codes by their first letters: `G01` -> `language`."""
    return _tables()["families"]


@lru_cache(maxsize=1)
def _tables() -> dict[str, dict[str, str]]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))
