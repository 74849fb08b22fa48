"""Products with fewer axes, or with axes in another order; and the order of their additions.

batch 8, 4   rows 64, 32   cols 512        (strides 8192, 2048 / 32, 1 / ...)
batch 32     rows 2048     cols 512
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from math import prod

from graphc.lowering.kernel.axes import OF_SUM, LoopAxis, axes_of, merged, with_axes
from graphc.lowering.kernel.code import Gemm
from graphc.support.dataclass import dataclass


def without_unit_axes(product: Gemm) -> Gemm:
    """The same product without axes of size 1, with neighboring axes merged if possible.

    Axes of `inner` are not merged here, as the order of additions depends on them. An axis of size
    0 stands for all. A batch axis along which one operand does not move is counted as the other's
    own.
    """
    axes = [a for a in axes_of(product) if a.size != 1]
    summed = [a for a in axes if a.group == OF_SUM]
    if 0 in product.inner:
        summed = [LoopAxis(0, (0,) * len(summed[0].strides), OF_SUM)]
    dealt = [_dealt(a) for a in axes if a.group != OF_SUM]
    groups = [[a for a in dealt if a.group == group] for group in ("batch", "rows", "cols")]
    return with_axes(product, [*(a for group in groups for a in merged(group)), *summed])


def _dealt(axis: LoopAxis) -> LoopAxis:
    left, right = (stride != 0 for stride in axis.strides[:2])
    if axis.group != "batch" or left == right:
        return axis
    return replace(axis, group="rows" if left else "cols")


def transposed(product: Gemm) -> Gemm:
    """The same product with rows and columns exchanged: the transposes, in the other order."""
    others = {"rows": "cols", "cols": "rows"}
    axes = [
        replace(a, group=others.get(a.group, a.group), strides=(*a.strides[1::-1], *a.strides[2:]))
        for a in axes_of(product)
    ]
    return with_axes(replace(product, left=product.right, right=product.left), axes)


def ending_with(product: Gemm, row: int, col: int) -> Gemm:
    """The same product with these axes as the last ones of rows and of cols."""
    n, m = len(product.batch), len(product.rows)
    last = [n + row] * bool(m) + [n + m + col] * bool(product.cols)
    return with_axes(product, sorted(axes_of(product), key=lambda a: a.number in last))


# -- the order of additions ------------------------------------------------------------------------

BLOCK = 512  # products that are added up from 0 before the sum is added to the sum of the others


@dataclass(frozen=True)
class SumBlocks:
    """The additions of a product in blocks: sums over `inside` one after the other, added up over
    `outside`.

    Axes have the strides of the left and of the right operand. The last axis outside counts the
    pieces of an axis that is divided; its last piece may be shorter: `rest` entries instead of
    `inside[0]`.
    """

    outside: tuple[LoopAxis, ...]
    inside: tuple[LoopAxis, ...]
    rest: int

    @cached_property
    def number(self) -> int:
        return prod(x.size for x in self.outside)

    @cached_property
    def length(self) -> int:
        """The number of entries in a block (in the longest, if they differ)."""
        return prod(x.size for x in self.inside)


def blocks(product: Gemm) -> SumBlocks:
    """Blocks of at most BLOCK entries, of equal size except for rests. They depend on `inner`
    alone.

    A block is a piece of one axis, with all of the later ones.
    """
    sizes = product.inner
    strides = zip(product.left.inner, product.right.inner, strict=True)
    loops = [LoopAxis(n, both) for n, both in zip(sizes, strides, strict=True)]
    at = len(sizes)
    while at > 0 and prod(sizes[at - 1 :]) <= BLOCK:
        at -= 1
    if at == 0:
        inside = tuple(merged(loops)) or (LoopAxis(1, (0, 0)),)
        return SumBlocks((), inside, inside[0].size)
    cut, after = loops[at - 1], loops[at:]
    longest = max(1, BLOCK // max(1, prod(sizes[at:])))
    pieces = -(-cut.size // longest)
    length = -(-cut.size // pieces)
    pieces = -(-cut.size // length)
    outside = (*loops[: at - 1], LoopAxis(pieces, tuple(length * s for s in cut.strides)))
    inside = tuple(merged(x for x in (replace(cut, size=length), *after) if x.size > 1))
    rest = cut.size - (pieces - 1) * length
    return SumBlocks(outside, inside, rest * inside[0].size // length)
