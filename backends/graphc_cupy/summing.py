"""Kernels that add up arrays of one memory, entry by entry, in a given order.

They are loop nests as the lowering makes them, so the printers of all targets print them, and an
addition has the bits that it has anywhere else.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphc.ir.placement import ReduceOp
from graphc.ir.types import DType
from graphc.lowering.kernel.code import (
    Access,
    Apply,
    Load,
    Nest,
    Parameter,
    Phase,
    Statement,
    Store,
)  # fmt: skip
from graphc.lowering.nodes.node_maker import combine
from graphc.lowering.program.strides import MemoryLayout
from graphc.support.dataclass import dataclass

Joins = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class OrderedSum:
    """Sums (largest, smallest entries) of rows of `count` entries.

    order: the additions, (i, j) is `row i += row j`; outputs: the rows that are written, of which
    each may have become a sum
    """

    op: ReduceOp
    dtype: DType
    count: int
    rows: int
    order: Joins
    outputs: tuple[int, ...] = (0,)

    def kernel(self) -> Nest:
        """Its parameters are the rows, and what they are written to."""
        function = combine(self.op, self.dtype)
        code: list[Statement] = [Load(k, Access(k, (1,))) for k in range(self.rows)]
        at = list(range(self.rows))  # the register that has each row
        for target, (i, j) in enumerate(self.order, self.rows):
            code.append(Apply(target, function, (at[i], at[j]), self.dtype))
            at[i] = target
        for slot, row in enumerate(self.outputs, self.rows):
            code.append(Store(Access(slot, (1,)), at[row]))
        return _nest(self.dtype, self.rows, len(self.outputs), (self.count,), code)


@dataclass(frozen=True)
class DenseCopy:
    """A copy of an array of any strides, without gaps; or `back`, from there to it."""

    layout: MemoryLayout
    dtype: DType
    back: bool = False

    def kernel(self) -> Nest:
        shape = self.layout.shape or (1,)
        strided = Access(0, self.layout.strides or (0,), self.layout.offset)
        dense = Access(0, MemoryLayout.dense(shape).strides)
        start, end = (dense, strided) if self.back else (strided, dense)
        into = Access(1, end.strides, end.offset)
        return _nest(self.dtype, 1, 1, shape, [Load(0, start), Store(into, 0)])


MadeKernel = OrderedSum | DenseCopy


def _nest(
    dtype: DType, reads: int, writes: int, rows: tuple[int, ...], code: Sequence[Statement]
) -> Nest:
    params = [Parameter(dtype)] * reads + [Parameter(dtype, written=True)] * writes
    return Nest(tuple(params), rows, (), (Phase(False, tuple(code)),))
