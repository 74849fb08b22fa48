"""The version of graphc."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=1)
def graphc_version() -> str:
    """The version of the installed graphc."""
    from importlib.metadata import PackageNotFoundError, version  # takes as long as all the rest

    try:
        return version("graphc")
    except PackageNotFoundError:
        return "unknown"
