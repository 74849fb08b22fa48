"""Domains: the entries that a kernel runs over, as axes that suit all nodes of the kernel.

A domain of N entries is cut into axes by a *chain*: the sizes of its suffixes, each a multiple of
the one before, from 1 to N. f32[8,128,256] has the chain (1, 256, 32768, 262144). Nodes of
different shapes run together if their chains join to one; then every affine read of each of them is
affine in the axes of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TypeAlias

from graphc.lowering.program.strides import MemoryLayout

Chain: TypeAlias = tuple[int, ...]
Interval: TypeAlias = tuple[int, int]  # the axis between two neighbours of a chain
NOTHING: frozenset[Interval] = frozenset()


def chain_of(shape: Sequence[int]) -> Chain:
    """The chain of a shape without zeros."""
    found, size = [1], 1
    for n in reversed(shape):
        if n != 1:
            size *= n
            found.append(size)
    return tuple(found)


def joined(a: Chain, b: Chain) -> Chain | None:
    """The chain whose axes make up those of both; None where there is none."""
    chain = tuple(sorted({*a, *b}))
    return chain if all(y % x == 0 for x, y in pairwise(chain)) else None


def axes(chain: Chain) -> list[Interval]:
    """The axes, the outermost first."""
    return list(pairwise(chain))[::-1]


def size(axis: Interval) -> int:
    """How many entries an axis has."""
    return axis[1] // axis[0]


def strides(layout: MemoryLayout, chain: Chain) -> dict[Interval, int]:
    """A layout's stride along each axis of a chain that its own chain is part of."""
    found: dict[Interval, int] = {}
    low = 1
    for n, stride in zip(reversed(layout.shape), reversed(layout.strides), strict=True):
        if n == 1:
            continue
        for axis in pairwise(c for c in chain if low <= c <= low * n):
            found[axis] = stride * (axis[0] // low)
        low *= n
    return found


def intervals(shape: Sequence[int], over: Iterable[int]) -> frozenset[Interval]:
    """Some dims of a shape, as intervals; neighbours are one."""
    chosen, found, low = set(over), list[Interval](), 1
    for d in reversed(range(len(shape))):
        high = low * shape[d]
        if d in chosen and high > low:
            if found and found[-1][1] == low:
                found[-1] = (found[-1][0], high)
            else:
                found.append((low, high))
        low = high
    return frozenset(found)


def inside(axis: Interval, columns: frozenset[Interval]) -> bool:
    """Whether an axis is part of one of the intervals."""
    return any(low <= axis[0] and axis[1] <= high for low, high in columns)


def cut_at(chain: Chain, columns: frozenset[Interval]) -> Chain | None:
    """The chain with the ends of the intervals in it."""
    return joined(chain, tuple(sorted({1, *(x for pair in columns for x in pair)})))


def rows_chain(chain: Chain, columns: frozenset[Interval]) -> Chain:
    """The chain of what is left without the columns."""
    found, low = [1], 1
    for axis in reversed(axes(chain)):
        if not inside(axis, columns):
            low *= size(axis)
            found.append(low)
    return tuple(found)


def with_rows(chain: Chain, columns: frozenset[Interval], rows: Chain) -> Chain | None:
    """The chain, cut so that what is left without the columns has the chain `rows` in it."""
    if joined(rows_chain(chain, columns), rows) is None:
        return None
    cuts, low = set(chain), 1
    for axis in reversed(axes(chain)):
        if not inside(axis, columns):
            high = low * size(axis)
            cuts |= {axis[0] * (c // low) for c in rows if low < c < high and c % low == 0}
            low = high
    return joined(tuple(sorted(cuts)), (1,))
