"""The fixed summation tree over the leaves of a batch: which sums exist, and in which order.

It is the balanced binary tree over leaves 0, 1, 2, ...: pairs (0,1), (2,3), ..., then pairs of
pairs. A *piece* (level, start) is the sum of the `2**level` leaves from `start`, a multiple of that
number. Leaves past the last example are absent: if the right child of a node has none, the node
equals its left child. A device holds its leaves as a *forest*: the largest complete pieces of its
part of the line, so that the tree does not depend on where the line is divided.

Stelz et al., Bioinformatics 2026, btag044, divide a summation tree in the same way.

Every balanced tree in graphc is this one: `tree_total` adds values that all exist already, a
`GrowingSum` adds values that arrive one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")
Piece: TypeAlias = tuple[int, int]  # level, first leaf


def pieces(start: int, stop: int) -> list[Piece]:
    """The largest complete pieces that make up leaves start .. stop-1, in order."""
    subtrees = []
    while start < stop:
        level = (stop - start).bit_length() - 1
        if start:
            level = min(level, (start & -start).bit_length() - 1)
        subtrees.append((level, start))
        start += 1 << level
    return subtrees


def carries(first: int, leaf: int) -> int:
    """How many pieces of a forest beginning with leaf `first` are joined when `leaf` arrives."""
    count = 0
    while (leaf >> count) & 1 and ((leaf >> count) - 1) << count >= first:
        count += 1
    return count


@lru_cache(maxsize=1024)
def most_pieces(slots: int, each: int) -> int:
    """The most pieces that a device ever holds, if each device has `each` of `slots` leaves."""
    return max(
        len(pieces(first, stop))
        for first in range(0, slots, each)
        for stop in range(first + 1, min(first + each, slots) + 1)
    )


@lru_cache(maxsize=1024)
def most_sent(slots: int, each: int) -> int:
    """The most pieces that a device holds once it has computed all its leaves."""
    parts = range(0, slots, each)
    return max(len(pieces(first, min(first + each, slots))) for first in parts)


@lru_cache(maxsize=1024)
def forests(members: int, each: int, present: int) -> tuple[tuple[Piece, ...], ...]:
    """The pieces of each member, which has `each` leaves; leaves from `present` on are absent."""
    return tuple(tuple(pieces(i * each, min((i + 1) * each, present))) for i in range(members))


@lru_cache(maxsize=1024)
def joins(members: int, each: int, present: int) -> tuple[tuple[int, int], ...]:
    """The additions that join the pieces of all members: (i, j) means `piece i += piece j`.

    The pieces are numbered in order; the sum ends in piece 0.
    """
    row = [(n, *p) for n, p in enumerate(p for f in forests(members, each, present) for p in f)]
    order: list[tuple[int, int]] = []
    level = 0
    while len(row) > 1:
        kept: list[tuple[int, int, int]] = []
        for number, height, start in row:
            if height > level:
                kept.append((number, height, start))
            elif start >> level & 1:  # the right child: its left one is the last that was kept
                left, _, first = kept.pop()
                order.append((left, number))
                kept.append((left, level + 1, first))
            else:
                kept.append((number, level, start))
        # A left child whose right one has no leaf moves up as it is.
        row = [(n, max(h, level + 1), s) for n, h, s in kept]
        level += 1
    return tuple(order)


def tree_total(parts: Sequence[T], add: Callable[[T, T], T]) -> T:
    """The sum of all parts by the tree, level by level; sums of one level are independent."""
    sums = list(parts)
    for i, j in joins(len(sums), 1, len(sums)):
        sums[i] = add(sums[i], sums[j])
    return sums[0]


class GrowingSum(Generic[T]):
    """The sum by the tree of parts that arrive one after the other; it only keeps a forest."""

    def __init__(self, add: Callable[[T, T], T]) -> None:
        self.add, self.count = add, 0
        self.forest: list[T] = []

    def take(self, part: T) -> None:
        """Add one more part."""
        for _ in range(carries(0, self.count)):
            part = self.add(self.forest.pop(), part)
        self.forest.append(part)
        self.count += 1

    def total(self) -> T:
        """The sum of all parts. No part may be added afterwards."""
        part = self.forest.pop()
        while self.forest:
            part = self.add(self.forest.pop(), part)
        return part
