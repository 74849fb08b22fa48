"""How the axes of a kernel run over the rows of the values that it accesses.

A value of n * l entries has n rows of l entries. If the rows of all values that some kernels pass
to each other are accessed in the same way, each kernel can be run on a few rows at a time:

    scores[b, h, t, s]   a product: batch (b, h), rows (t), cols (s)     axis t goes through rows
    sums[b, h, t]        a fold: rows (b, h, t merged), columns (s)      axis bht goes through rows
    dk[b, h, s, d]       a product: ..., inner (t)                       a sum over rows
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

from graphc.lowering.fusion.domains import Cuts, Interval
from graphc.lowering.kernel.code import Gemm, Nest, accesses

Part: TypeAlias = Nest | Gemm


@dataclass(frozen=True)
class LoopAxis:
    """An axis of a kernel, in one of its groups (as the kernel's fields are named).

    strides: of each reach. number, step: which index of the kernel's code it is a part of, and how
    far that goes in one step (-1: of inner, which code does not see). row_axis: the rows it goes
    through, as an interval of their chain; None for an axis inside of rows, or beside them
    """

    size: int
    group: str
    strides: tuple[int, ...]
    number: int
    step: int = 1
    row_axis: Interval | None = None


@dataclass(frozen=True)
class Reach:
    """An operand of a product, or an access of code: element `offset` behind parameter `slot`."""

    slot: int
    offset: int


@dataclass(frozen=True)
class KernelAxes:
    """A kernel as axes; reaches: of a product its operands first, then those of the code."""

    kernel: Part
    axes: tuple[LoopAxis, ...]
    reaches: tuple[Reach, ...]

    @property
    def sums(self) -> bool:
        """Whether it adds up over rows."""
        return any(a.row_axis is not None and a.group == "inner" for a in self.axes)


def axes_of_kernel(kernel: Part) -> KernelAxes:
    """The kernel, before it is known what its axes go through."""
    every = list(accesses(kernel))
    reaches = [Reach(a.slot, a.offset) for a in every]
    found: list[LoopAxis] = []
    sides = (kernel.left, kernel.right) if isinstance(kernel, Gemm) else ()
    groups = ("batch", "rows", "cols") if sides else ("rows", "columns")
    for group in groups:
        for k, n in enumerate(getattr(kernel, group)):
            number = len(found)
            own = [getattr(s, group)[k] for s in sides]
            strides = (*own, *(a.strides[number] for a in every))
            found.append(LoopAxis(n, group, strides, number))
    if isinstance(kernel, Gemm):
        nothing = (0,) * len(every)
        for n, left, right in zip(kernel.inner, kernel.left.inner, kernel.right.inner, strict=True):
            found.append(LoopAxis(n, "inner", (left, right, *nothing), -1))
    reaches = [*(Reach(s.slot, s.offset) for s in sides), *reaches]
    return KernelAxes(kernel, tuple(found), tuple(reaches))


def with_row_axes(
    x: KernelAxes, lengths: Sequence[int | None], starts: Sequence[int]
) -> KernelAxes | None:
    """The kernel with the rows that its axes go through; None if they do not go through them so.

    lengths: of a row of what is reached (None: of what has no rows); starts: where each reach
    begins, in elements of the whole value
    """
    axes: list[LoopAxis] = []
    for axis in x.axes:
        breaks = _cuts(axis, lengths)
        if breaks is None:
            return None
        axes += split(axis, breaks)
    made: list[LoopAxis] = []
    for axis in axes:
        found = _row_axis_of(x, axis, lengths)
        if found is None:
            return None
        made.append(replace(axis, row_axis=found[0]))
    result = replace(x, axes=tuple(made))
    return result if _stays_inside(result, lengths, starts) else None


def _cuts(axis: LoopAxis, lengths: Sequence[int | None]) -> list[int] | None:
    """The sizes at which an axis leaves a row."""
    found = set()
    for stride, length in zip(axis.strides, lengths, strict=True):
        if not length or not stride or axis.size == 1:
            continue
        if stride < 0:
            return None
        if stride < length <= stride * (axis.size - 1):
            if length % stride:
                return None
            found.add(length // stride)
    every = [1, *sorted(found), axis.size]
    return sorted(found) if all(b % a == 0 for a, b in pairwise(every)) else None


def split(axis: LoopAxis, breaks: Iterable[int]) -> list[LoopAxis]:
    """The axis in parts, from outside in; the inner ones have as many entries as is cut."""
    ends, made = [1, *breaks, axis.size], list[LoopAxis]()
    for low, high in pairwise(ends):
        strides = tuple(s * low for s in axis.strides)
        made.insert(0, replace(axis, size=high // low, strides=strides, step=axis.step * low))
    return made


def _row_axis_of(
    x: KernelAxes, axis: LoopAxis, lengths: Sequence[int | None]
) -> tuple[Interval | None] | None:
    """What an axis goes through; None if one reach says so and another does not."""
    roles: set[Interval | None] = set()
    first_of_code = len(x.reaches) if axis.group == "inner" else 0
    for k, (stride, length) in enumerate(zip(axis.strides, lengths, strict=True)):
        if not length or axis.size == 1 or (k >= 2 and first_of_code):
            continue
        if stride < length:
            roles.add(None)
        elif stride % length:
            return None
        else:
            roles.add((stride // length, stride // length * axis.size))
    if len(roles) > 1:
        return None
    row_axis = roles.pop() if roles else None
    of_code = [n for n in lengths[2:] if n] if first_of_code else []
    outside = row_axis is not None and (axis.group == "columns" or bool(of_code))
    return None if outside else (row_axis,)


def _stays_inside(x: KernelAxes, lengths: Sequence[int | None], starts: Sequence[int]) -> bool:
    """Whether every reach begins in the first row, and goes on within a row."""
    for k, (length, start) in enumerate(zip(lengths, starts, strict=True)):
        inside = sum(a.strides[k] * (a.size - 1) for a in x.axes if a.row_axis is None)
        if length and start + inside >= length:
            return False
    return True


def cuts(x: KernelAxes) -> Cuts | None:
    """The chain of the rows that a kernel goes through; None unless it goes through each once."""
    found = sorted(a.row_axis for a in x.axes if a.row_axis is not None)
    ends = [1, *(high for _, high in found)]
    return (
        tuple(ends) if all(low == end for (low, _), end in zip(found, ends, strict=False)) else None
    )


def cut(x: KernelAxes, rows: Cuts) -> KernelAxes:
    """The kernel with its axes cut where the chain of the rows is."""
    axes: list[LoopAxis] = []
    for axis in x.axes:
        if axis.row_axis is None:
            axes.append(axis)
            continue
        low, high = axis.row_axis
        for part in split(axis, [c // low for c in rows if low < c < high]):
            high, end = high // part.size, high
            axes.append(replace(part, row_axis=(high, end)))
    return replace(x, axes=tuple(axes))
