"""Sums over microbatches in a chosen order: the values that are kept, and how they are combined.

An accumulation in another order than a running sum keeps several values, in an additional first
dim: all contributions (add_n), or their forest (tree). `keep` adds a microbatch's contribution; the
op `settle` computes the sum after the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from graphc.ir.dims import letters
from graphc.ir.leaf_tree import carries, pieces
from graphc.ir.op import Op, register, require
from graphc.ir.orders import Order
from graphc.ir.placement import ReduceOp
from graphc.ir.types import TensorType
from graphc.ops.rules import wide

if TYPE_CHECKING:
    from graphc.ir.op import Array

COMBINE: dict[str, np.ufunc] = {"sum": np.add, "max": np.maximum, "min": np.minimum}


def keep(order: Order, op: ReduceOp, turn: int, x: Array, kept: Array) -> None:
    """Add the contribution of microbatch `turn`, counted from 0; they arrive in order.

    tree: kept holds the forest of the contributions (see `grow`).
    """
    if order is Order.ADD_N:
        np.copyto(kept[turn, ...], x)
    else:
        grow(kept, x, 0, turn, COMBINE[op])


def grow(forest: Array, x: Array, first: int, turn: int, combine: np.ufunc) -> None:
    """Add leaf `first + turn` to the forest of the leaves `first` to `first + turn - 1`."""
    leaf = first + turn
    top = len(pieces(first, leaf))
    joined = carries(first, leaf)
    if not joined:
        np.copyto(forest[top, ...], x)  # a view, also of numbers
        return
    combine(forest[top - 1], x, out=forest[top - 1, ...])
    for k in range(top - 2, top - 1 - joined, -1):
        combine(forest[k], forest[k + 1], out=forest[k, ...])


@register
class Settle(Op):
    """`y` is the sum (max, min) of the contributions that x holds after `turns` microbatches

    x has an additional first dim: for 'add_n' it holds the contributions, for 'tree' their forest
    (graphc.ir.leaf_tree).
    """

    order: Order
    turns: int
    op: ReduceOp = "sum"
    conversion = True
    not_differentiable = "conversions are inserted after differentiation"

    def infer(self, *types: TensorType) -> TensorType:
        require(types[0].rank > 0, "settle takes what was kept, in its first dim")
        return TensorType(types[0].shape[1:], types[0].dtype)

    def dims(self, *types: TensorType) -> str:
        rule = letters(types[0].rank - 1)
        return f"k! {rule} -> {rule}" if types[0].rank > 1 else "k! -> ."

    def run(self, *xs: Array) -> Array:
        (kept,) = xs
        all_of_them = self.order is Order.ADD_N
        parts = [wide(x) for x in kept[: None if all_of_them else len(pieces(0, self.turns))]]
        combine = COMBINE[self.op]
        if all_of_them:
            return np.array(reduce(combine, parts), kept.dtype)
        return np.array(reduce(lambda total, x: combine(x, total), parts[::-1]), kept.dtype)

    @classmethod
    def samples(cls) -> Sequence[tuple[Op, str]]:
        return [(cls(Order.ADD_N, 3), "f32[3,2]"), (cls(Order.TREE, 5), "f32[3,4,2]")]
