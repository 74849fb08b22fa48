"""Products with fewer axes: neighbours that every access sees as one become one axis.

batch 8, 4   rows 64, 32   cols 512        (strides 8192, 2048 / 32, 1 / ...)
batch 32     rows 2048     cols 512
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import prod

from graphc.ir.types import I64
from graphc.lowering.kernel.code import (
    Access,
    AxisIndex,
    Gemm,
    Number,
    Side,
    Statement,
    accesses,
    with_accesses,
)


@dataclass(frozen=True)
class GemmAxis:
    """An axis, its strides in the left, the right and every access of the code, and its number."""

    size: int
    strides: tuple[int, ...]
    number: int
    fixed: bool  # code asks for its index: it stays as it is


def without_unit_axes(product: Gemm) -> Gemm:
    """The same product without axes of size 1, and with neighbours merged where they can be.

    Axes of `inner` are not merged here: the order of additions goes by them.
    """
    groups = [_merged(axes) for axes in _dealt(*_axes(product))]
    left, right = (
        replace(
            side,
            batch=_strides(groups[0], k),
            rows=_strides(groups[1], k),
            inner=_taken(side.inner, product.inner),
            cols=_strides(groups[2], k),
        )
        for k, side in enumerate((product.left, product.right))
    )
    batch, rows, cols = (tuple(a.size for a in axes) for axes in groups)
    return replace(
        product, left=left, right=right, batch=batch, rows=rows, cols=cols,
        inner=_taken(product.inner, product.inner),
        code=_renamed(product.code, [a for axes in groups for a in axes]),
    )  # fmt: skip


def transposed(product: Gemm) -> Gemm:
    """The same product with rows as columns: the right operand's transpose times the left's."""
    n, m = len(product.batch), len(product.rows)
    order = [*range(n), *range(n + m, n + m + len(product.cols)), *range(n, n + m)]
    return replace(
        product, left=_transposed(product.right), right=_transposed(product.left),
        rows=product.cols, cols=product.rows, code=_reordered(product.code, order),
    )  # fmt: skip


def ending_with(product: Gemm, row: int, col: int) -> Gemm:
    """The same product with those axes as the last of rows and of cols."""
    n, m = len(product.batch), len(product.rows)
    rows, cols = _last(m, row), _last(len(product.cols), col)
    order = [*range(n), *(n + k for k in rows), *(n + m + k for k in cols)]
    left, right = (
        replace(x, rows=_picked(x.rows, rows), cols=_picked(x.cols, cols))
        for x in (product.left, product.right)
    )
    return replace(
        product, left=left, right=right, rows=_picked(product.rows, rows),
        cols=_picked(product.cols, cols), code=_reordered(product.code, order),
    )  # fmt: skip


def _last(n: int, k: int) -> list[int]:
    return [*(i for i in range(n) if i != k), *([k] if n else [])]


def _picked(values: tuple[int, ...], order: Sequence[int]) -> tuple[int, ...]:
    return tuple(values[k] for k in order)


def _reordered(code: Sequence[Statement], order: Sequence[int]) -> tuple[Statement, ...]:
    """Code whose axes come in another order."""
    axes = [GemmAxis(0, (), number, False) for number in order]
    return tuple(with_accesses(s, lambda a: _permuted(a, order)) for s in _numbered(code, axes))


def _axes(product: Gemm) -> list[list[GemmAxis]]:
    """Of batch, rows and cols; those of size 1 are left out."""
    found = list(accesses(product))
    asked = {s.axis for s in product.code if isinstance(s, AxisIndex)}
    groups, number = [], 0
    for name in ("batch", "rows", "cols"):
        axes = []
        sizes: tuple[int, ...] = getattr(product, name)
        lefts: tuple[int, ...] = getattr(product.left, name)
        rights: tuple[int, ...] = getattr(product.right, name)
        for size, left, right in zip(sizes, lefts, rights, strict=True):
            strides = (left, right, *(a.strides[number] for a in found))
            if size != 1:
                axes.append(GemmAxis(size, strides, number, number in asked))
            number += 1
        groups.append(axes)
    return groups


def _dealt(
    batch: list[GemmAxis], rows: list[GemmAxis], cols: list[GemmAxis]
) -> list[list[GemmAxis]]:
    """Axes of batch along which one operand stays where it is count as the other's own."""
    own: list[list[GemmAxis]] = [[], [], []]
    for axis in batch:
        left, right = axis.strides[0] != 0, axis.strides[1] != 0
        own[0 if left == right else 1 if left else 2].append(axis)
    return [own[0], own[1] + rows, own[2] + cols]


def _merged(axes: Sequence[GemmAxis]) -> list[GemmAxis]:
    made: list[GemmAxis] = []
    for axis in axes:
        last = made[-1] if made else None
        if last is not None and _is_one(last, axis):
            made[-1] = replace(axis, size=last.size * axis.size)
        else:
            made.append(axis)
    return made


def _is_one(outer: GemmAxis, inner: GemmAxis) -> bool:
    """Whether a step of the outer axis is, for all, as far as the whole of the inner one."""
    whole = tuple(inner.size * s for s in inner.strides)
    return outer.strides == whole and not outer.fixed and not inner.fixed


def _strides(axes: Sequence[GemmAxis], k: int) -> tuple[int, ...]:
    return tuple(a.strides[k] for a in axes)


def _taken(values: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The values of axes that have not size 1; one axis of size 0 stands for all, if there is."""
    if 0 in sizes:
        return (0,)
    return tuple(x for x, n in zip(values, sizes, strict=True) if n != 1)


def _renamed(code: Sequence[Statement], axes: Sequence[GemmAxis]) -> tuple[Statement, ...]:
    """Code with accesses of the new axes."""
    number = count(2)

    def renamed(access: Access) -> Access:
        k = next(number)
        return replace(access, strides=tuple(a.strides[k] for a in axes))

    return tuple(with_accesses(s, renamed) for s in _numbered(code, axes))


def _numbered(code: Sequence[Statement], axes: Sequence[GemmAxis]) -> list[Statement]:
    """Code that asks for indices by the axes' new numbers; of an axis of size 1 it is 0."""
    numbers = {a.number: k for k, a in enumerate(axes)}
    made: list[Statement] = []
    for s in code:
        match s:
            case AxisIndex(target, axis) if axis in numbers:
                made.append(AxisIndex(target, numbers[axis]))
            case AxisIndex(target):
                made.append(Number(target, 0, I64))
            case _:
                made.append(s)
    return made


def _permuted(access: Access, order: Sequence[int]) -> Access:
    return replace(access, strides=tuple(access.strides[k] for k in order))


def _transposed(side: Side) -> Side:
    return replace(side, rows=side.cols, cols=side.rows)


# -- the order of additions ------------------------------------------------------------------------

BLOCK = 512  # products that are added up from 0 before the sum is added to the sum of the others


@dataclass(frozen=True)
class SumLoop:
    """One loop over entries of inner: how often, and the steps in the left and the right."""

    count: int
    left: int
    right: int


@dataclass(frozen=True)
class SumBlocks:
    """Inner in blocks: sums over `inside` are made one after the other, added up over `outside`.

    The last loop outside counts pieces of the axis whose rest, `inside[0]`, may be shorter in the
    last piece: `rest` times.
    """

    outside: tuple[SumLoop, ...]
    inside: tuple[SumLoop, ...]
    rest: int

    @property
    def number(self) -> int:
        return prod(x.count for x in self.outside)

    @property
    def length(self) -> int:
        """Entries of a block (of the longest, if they differ)."""
        return prod(x.count for x in self.inside)


def blocks(product: Gemm) -> SumBlocks:
    """Blocks of at most BLOCK entries, of equal size but for rests; a function of `inner` alone.

    A block is a piece of one axis and the whole of all later ones.
    """
    sizes = product.inner
    loops = [SumLoop(*x) for x in zip(sizes, product.left.inner, product.right.inner, strict=True)]
    at = len(sizes)
    while at > 0 and prod(sizes[at - 1 :]) <= BLOCK:
        at -= 1
    if at == 0:
        inside = fused(loops) or (SumLoop(1, 0, 0),)
        return SumBlocks((), inside, inside[0].count)
    cut, after = loops[at - 1], loops[at:]
    longest = max(1, BLOCK // max(1, prod(sizes[at:])))
    pieces = -(-cut.count // longest)
    length = -(-cut.count // pieces)
    pieces = -(-cut.count // length)
    outside = (*loops[: at - 1], SumLoop(pieces, length * cut.left, length * cut.right))
    inside = fused([x for x in (replace(cut, count=length), *after) if x.count > 1])
    rest = cut.count - (pieces - 1) * length
    return SumBlocks(outside, inside, rest * inside[0].count // length)


def fused(loops: Sequence[SumLoop]) -> tuple[SumLoop, ...]:
    made: list[SumLoop] = []
    for x in loops:
        last = made[-1] if made else None
        whole = (x.count * x.left, x.count * x.right)
        if last is not None and (last.left, last.right) == whole:
            made[-1] = replace(x, count=last.count * x.count)
        else:
            made.append(x)
    return tuple(made)
