"""The rows of a nest in the order in which its lanes read memory best.

Rows are independent, so their axes may stand in any order; no bit depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from graphc.lowering.kernel.code import (
    Access,
    AxisIndex,
    LinkedSum,
    Load,
    Nest,
    Phase,
    Statement,
    Store,
    reached,
    with_accesses,
)
from graphc_numpy.native.llvm.vectors import WIDTH
from graphc_numpy.native.loops.invariant_motion import effort


@lru_cache(maxsize=256)
def interchanged(nest: Nest) -> Nest:
    """The nest with that row axis last along which vectors cost least, and tiles for a transpose.

    One whose rows must run in order, or whose lanes go along the columns, stays as it is.
    """
    rows = len(nest.rows)
    if nest.serial or nest.lanes != "rows" or rows < 2:
        return nest
    best = min(reversed(range(rows)), key=lambda axis: _cost(nest, axis))
    order = [a for a in range(rows) if a != best] + [best]
    return _tiled(nest if order == list(range(rows)) else _ordered(nest, order))


def _cost(nest: Nest, axis: int) -> float:
    """About how many instructions an entry takes, if lanes go along an axis."""
    code = [x for p in nest.phases if p.per_column or not nest.columns for x in p.code]
    work = effort(code) + sum(_jumps(x, axis) for x in code)
    size = nest.rows[axis]
    return work * -(-size // WIDTH) / max(size, 1)


def _jumps(statement: Statement, axis: int) -> int:
    """What it costs if lanes along an axis do not lie together."""
    match statement:
        case Load(access=access) | LinkedSum(access=access) if access.strides[axis] not in (0, 1):
            return 2 * WIDTH
        case Store(access=access) if access.strides[axis] not in (0, 1):
            return 3 * WIDTH
        case _:
            return 0


def _tiled(nest: Nest) -> Nest:
    """A map whose lanes jump, where another axis lies together: both in tiles, a tile at a time.

    Else each of the cache's lines is fetched again for every entry in it.
    """
    last, every = len(nest.rows) - 1, [x for p in nest.phases for x in p.code]
    jumping = [a for x in every if _jumps(x, last) for a in reached(x)]
    across = [a for a in range(last) if any(x.strides[a] == 1 for x in jumping)]
    if nest.columns or not across:
        return nest
    parts = {across[-1]: _part(nest.rows[across[-1]], 1), last: _part(nest.rows[last], WIDTH)}
    counted = any(isinstance(x, AxisIndex) and x.axis in parts for x in every)
    if counted or not all(parts.values()):
        return nest
    sizes = [size // parts.get(a, 1) for a, size in enumerate(nest.rows)]
    phases = tuple(
        Phase(p.per_column, tuple(_split(x, parts) for x in p.code)) for p in nest.phases
    )
    return replace(nest, rows=(*sizes, *parts.values()), phases=phases)


def _part(size: int, unit: int) -> int:
    """The side of a tile: divides a size, and goes up in units where it is less; 0 for none."""
    if size <= 2 * WIDTH:
        return size
    found = [n for n in range(WIDTH // 2, 2 * WIDTH + 1) if size % n == 0 and n % unit == 0]
    return min(found, key=lambda n: abs(n - WIDTH), default=0)


def _split(statement: Statement, parts: Mapping[int, int]) -> Statement:
    """A statement for axes that go on in steps of a part, and new ones at the end for the rest."""

    def split(access: Access) -> Access:
        found = access.strides
        steps = [s * parts.get(a, 1) for a, s in enumerate(found)]
        return replace(access, strides=(*steps, *(found[a] for a in parts)))

    return with_accesses(statement, split)


def _ordered(nest: Nest, order: Sequence[int]) -> Nest:
    """The nest with row axis k being what `order[k]` was."""
    every = [*order, *range(len(order), len(order) + len(nest.columns))]
    phases = tuple(
        Phase(p.per_column, tuple(_reordered(x, every) for x in p.code)) for p in nest.phases
    )
    return replace(nest, rows=tuple(nest.rows[a] for a in order), phases=phases)


def _reordered(statement: Statement, order: Sequence[int]) -> Statement:
    """A statement for axes in another order: new axis k is the old order[k]."""
    if isinstance(statement, AxisIndex):
        return replace(statement, axis=order.index(statement.axis))
    return with_accesses(
        statement, lambda x: replace(x, strides=tuple(x.strides[a] for a in order))
    )
