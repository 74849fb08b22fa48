"""Records cached on disk beside machine code: JSON files, under keys of the same kind.

A file that is not as it should be is ignored, and made again.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

from graphc.lowering.program.codec import decode, encode
from graphc.support import config
from graphc.support.object_cache import Objects

T = TypeVar("T")


def read(kind: type[T], key: str) -> T | None:
    """The record cached under a key, or None."""
    text = Objects.at(config.cache_folder()).read(key)
    return decoded(kind, text) if text is not None else None


def write(key: str, record: Any) -> None:
    """Cache a record. Raises TypeError, RecursionError for one without a JSON form."""
    Objects.at(config.cache_folder()).write(key, encoded(record).encode())


def encoded(record: Any) -> str:
    """A record as JSON."""
    return json.dumps(encode(record), separators=(",", ":"))


def decoded(kind: type[T], text: str | bytes) -> T | None:
    """The record in a text; None where there is none, whatever may be there instead."""
    try:
        return decode(kind, json.loads(text))
    except Exception:
        return None
