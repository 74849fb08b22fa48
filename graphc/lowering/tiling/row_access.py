"""How the axes of a kernel run over the rows of the values that it accesses.

A value of n * l entries has n rows of l entries. If the rows of all values that some kernels pass
to each other are accessed in the same way, each kernel can be run on a few rows at a time:

    scores[b, h, t, s]   a product: batch (b, h), rows (t), cols (s)     axis t goes through rows
    sums[b, h, t]        a fold: rows (b, h, t merged), columns (s)      axis bht goes through rows
    dk[b, h, s, d]       a product: ..., inner (t)                       a sum over rows
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias

from graphc.lowering.fusion.domains import Cuts
from graphc.lowering.kernel.axes import OF_SUM, LoopAxis, Reach, axes_of, reaches, split
from graphc.lowering.kernel.code import Gemm, Nest
from graphc.support.dataclass import dataclass

Part: TypeAlias = Nest | Gemm


@dataclass(frozen=True)
class KernelAxes:
    """A kernel, its axes, and what it reaches by them."""

    kernel: Part
    axes: tuple[LoopAxis, ...]
    reaches: tuple[Reach, ...]

    @property
    def sums(self) -> bool:
        """Whether it adds up over rows."""
        return any(a.row and a.group == OF_SUM for a in self.axes)


def row_axes(
    kernel: Part, lengths: Sequence[int | None], starts: Sequence[int]
) -> KernelAxes | None:
    """The kernel with the rows that its axes go through; None if they do not go through them so.

    lengths: of a row of what is reached (None: of what has no rows); starts: where each reach
    begins, in elements of the whole value
    """
    axes: list[LoopAxis] = []
    for axis in axes_of(kernel):
        sizes = _cuts(axis, lengths)
        if sizes is None:
            return None
        for part in split(axis, sizes):
            row = _row_of(part, lengths)
            if row is None:
                return None
            axes.append(replace(part, row=row))
    result = KernelAxes(kernel, tuple(axes), tuple(reaches(kernel)))
    return result if _stays_inside(result, lengths, starts) else None


def _cuts(axis: LoopAxis, lengths: Sequence[int | None]) -> list[int] | None:
    """The sizes at which an axis leaves a row."""
    sizes = set[int]()
    for stride, length in zip(axis.strides, lengths, strict=False):  # random numbers have no rows
        if not length or not stride or axis.size == 1:
            continue
        if stride < 0:
            return None
        if stride < length <= stride * (axis.size - 1):
            if length % stride:
                return None
            sizes.add(length // stride)
    every = [1, *sorted(sizes), axis.size]
    return sorted(sizes) if all(b % a == 0 for a, b in pairwise(every)) else None


def _row_of(axis: LoopAxis, lengths: Sequence[int | None]) -> int | None:
    """How many rows an axis goes on in a turn; None if what is reached does not agree on it."""
    of_sum = axis.group == OF_SUM
    steps = set[int]()
    for stride, length in zip(axis.strides, lengths[:2] if of_sum else lengths, strict=False):
        if length and axis.size != 1:
            row, rest = divmod(stride, length)
            if row and rest:
                return None
            steps.add(row)
    if len(steps) > 1:
        return None
    row = steps.pop() if steps else 0
    beside = axis.group == "columns" or (of_sum and any(lengths[2:]))
    return None if row and beside else row


def _stays_inside(x: KernelAxes, lengths: Sequence[int | None], starts: Sequence[int]) -> bool:
    """Whether every reach begins in the first row, and goes on within a row."""
    for k, (length, start) in enumerate(zip(lengths, starts, strict=True)):
        inside = sum(a.strides[k] * (a.size - 1) for a in x.axes if not a.row)
        if length and start + inside >= length:
            return False
    return True


def cuts(x: KernelAxes) -> Cuts | None:
    """The cuts of the rows that a kernel goes through; None unless it goes through each once."""
    intervals = sorted(a.rows for a in x.axes if a.rows)
    ends = [1, *(high for _, high in intervals)]
    each = all(low == end for (low, _), end in zip(intervals, ends, strict=False))
    return tuple(ends) if each else None


def cut(x: KernelAxes, rows: Cuts) -> KernelAxes:
    """The kernel with its axes split where the rows are cut."""
    axes: list[LoopAxis] = []
    for axis in x.axes:
        low, high = axis.rows or (1, 1)
        axes += split(axis, [c // low for c in rows if low < c < high])
    return replace(x, axes=tuple(axes))
