"""The table that the tests on a GPU fill."""

from __future__ import annotations

from collections.abc import Iterator

from gpu.told import tell

ROWS: list[tuple[str, str]] = []


def row(what: str, found: str) -> None:
    """One more row."""
    ROWS.append((what, found))
    tell(row=what, found=found)


def printed() -> Iterator[str]:
    """The rows, in two columns."""
    width = max(len(what) for what, _ in ROWS)
    return (f"{what:{width}}  {found}" for what, found in ROWS)
