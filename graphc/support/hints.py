"""What users of other libraries write, and what to write here instead: the entries of hints.toml.

Its tables are of the places in which a name is looked for in vain: names of `graphc.nn`, arguments
of `fit`. It is read when the first hint is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).with_name("hints.toml")
TOO_MANY: Final = "too_many"  # in tables of arguments: what to say of a call with too many


@lru_cache(maxsize=64)
def hints(place: str) -> Mapping[str, str]:
    """The hints of a table by name; names with the same hint share a key in the file."""
    return {name: hint for names, hint in _tables()[place].items() for name in names.split()}


@lru_cache(maxsize=1)
def _tables() -> dict[str, dict[str, str]]:
    import tomllib  # where a hint is asked for

    return tomllib.loads(FILE.read_text(encoding="utf-8"))


__all__ = ["TOO_MANY", "hints"]
