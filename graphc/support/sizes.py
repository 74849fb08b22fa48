"""Sizes in bytes, as people write them."""

from __future__ import annotations

import re

_SIZE = re.compile(r"(\d{1,15}(?:\.\d+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)


def size_of(text: str) -> int | None:
    """The bytes in a text such as `8MB` (8,000,000), `1.5 GiB` or `1024`; None if it is no size."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    base = 1024 if match[3] else 1000
    return int(float(match[1]) * base ** " KMGT".index(match[2].upper() or " "))
