"""The rows of a nest in the order in which its lanes read memory best.

Rows are independent, so their axes may stand in any order; no bit depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from graphc.kernels.code import Index, Load, Nest, Phase, Statement, Store
from graphc_numpy.native.lanes import WIDTH
from graphc_numpy.native.stages import effort


@lru_cache(maxsize=256)
def arranged(nest: Nest) -> Nest:
    """The nest with that row axis last along which vectors cost least.

    One whose rows must run in order, or whose lanes go along the columns, stays as it is.
    """
    rows = len(nest.rows)
    if nest.serial or nest.lanes != "rows" or rows < 2:
        return nest
    best = min(reversed(range(rows)), key=lambda axis: _cost(nest, axis))
    order = [a for a in range(rows) if a != best] + [best]
    if order == list(range(rows)):
        return nest
    every = order + list(range(rows, rows + len(nest.columns)))
    phases = tuple(Phase(p.cells, tuple(_moved(x, every) for x in p.code)) for p in nest.phases)
    return replace(nest, rows=tuple(nest.rows[a] for a in order), phases=phases)


def _cost(nest: Nest, axis: int) -> float:
    """About how many instructions an entry takes, if lanes go along an axis."""
    code = [x for p in nest.phases if p.cells or not nest.columns for x in p.code]
    strides = [x.access.strides[axis] for x in code if isinstance(x, Load | Store)]
    scattered = sum(stride not in (0, 1) for stride in strides)
    size = nest.rows[axis]
    vectors = -(-size // WIDTH)
    return (effort(code) + 2 * WIDTH * scattered) * vectors / max(size, 1)


def _moved(statement: Statement, order: Sequence[int]) -> Statement:
    """A statement for axes in another order: new axis k is the old order[k]."""
    match statement:
        case Load(access=access) | Store(access=access):
            strides = tuple(access.strides[a] for a in order)
            return replace(statement, access=replace(access, strides=strides))
        case Index(axis=axis):
            return replace(statement, axis=order.index(axis))
        case _:
            return statement
