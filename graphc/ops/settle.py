"""What is kept of a sum over turns, and how the whole is made of it.

An accumulation in another order than a running sum keeps several values, in a dim of its own in
front: all turns (add_n), or the sums of a binary counter (tree). `keep` takes a turn in; the op
`settle` makes the whole after the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from graphc.ir.dims import letters
from graphc.ir.op import Op, register, require
from graphc.ir.placement import ReduceOp
from graphc.ir.types import TensorType
from graphc.ops.rules import wide

if TYPE_CHECKING:
    from graphc.ir.op import Array

COMBINE: dict[str, np.ufunc] = {"sum": np.add, "max": np.maximum, "min": np.minimum}


def keep(order: str, op: ReduceOp, turn: int, x: Array, kept: Array) -> None:
    """Take in the value of a turn, counted from 0; turns come in order.

    tree: after t turns kept[i] is the sum of 2^i of them wherever bit i of t is set, earlier turns
    at higher bits. A turn carries as one does when it is added to a binary number.
    """
    if order == "add_n":
        np.copyto(kept[turn, ...], x)
        return
    carries = (~turn & (turn + 1)).bit_length() - 1
    total = kept[carries, ...]  # a view, also of numbers
    if not carries:
        np.copyto(total, x)
        return
    COMBINE[op](kept[0, ...], x, out=total)
    for i in range(1, carries):
        COMBINE[op](kept[i, ...], total, out=total)


@register
class Settle(Op):
    """`y` is the whole sum (max, min) of what x keeps of it after `turns` turns

    x has a dim in front that y has not: for 'add_n' it holds the turns, for 'tree' the sums of a
    binary counter, of which those count whose bit of `turns` is set.
    """

    order: str
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
        all_of_them = self.order == "add_n"
        counted = [i for i in range(len(kept)) if all_of_them or self.turns >> i & 1]
        total = wide(kept[counted[0]])
        for i in counted[1:]:
            pair = (total, kept[i]) if all_of_them else (kept[i], total)
            total = COMBINE[self.op](*pair)
        return np.array(total, kept.dtype)

    @classmethod
    def samples(cls) -> Sequence[tuple[Op, str]]:
        return [(cls("add_n", 3), "f32[3,2]"), (cls("tree", 5), "f32[3,4,2]")]
