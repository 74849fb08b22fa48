"""Tables as text."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence


def aligned(rows: Sequence[Sequence[str]], right: Container[int]) -> Iterator[str]:
    """A line for each row, the cells as wide as their column: numbers, in the columns `right`, end
    at its right side, other text begins at its left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, strict=True)
        padded = (c.rjust(n) if k in right else c.ljust(n) for k, (c, n) in enumerate(cells))
        yield "  ".join(padded).rstrip()
