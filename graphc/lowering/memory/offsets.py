"""The one allocator: from how long blocks of memory live to their offsets in an arena."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphc.lowering.memory.arena import ALIGN, Arena, aligned
from graphc.lowering.memory.timeline import Life, Lives

MOST = 1000  # blocks that are placed by size: it takes the square of their number

Sizes: TypeAlias = Mapping[int, int]  # bytes, by block
Offsets: TypeAlias = tuple[dict[int, int], int]  # offset by block, and bytes of the arena


def tightest(lives: Lives, sizes: Sizes, align: int = ALIGN) -> Offsets:
    """Offsets such that blocks that live at one time lie apart, by the way that takes least.

    align: bytes at whose multiples blocks begin
    """
    sizes = {b: aligned(sizes[b], align) for b in lives}
    plans = [in_order(lives, sizes)]
    if len(lives) <= MOST:
        plans.append(largest_first(lives, sizes))
    return min(plans, key=lambda plan: plan[1])


def in_order(lives: Lives, sizes: Sizes) -> Offsets:
    """Each block in the smallest gap that holds it, when its life begins. sizes: aligned"""
    born: dict[int, list[int]] = defaultdict(list)
    dies: dict[int, list[int]] = defaultdict(list)
    for b, life in lives.items():
        born[life[0][0]].append(b)
        dies[life[-1][1]].append(b)
    arena, offsets = Arena(), dict[int, int]()
    for at in sorted(born.keys() | dies.keys()):
        for b in sorted(born[at], key=lambda b: -sizes[b]):
            offsets[b] = arena.take(sizes[b])
        for b in dies[at]:
            arena.give(offsets[b], sizes[b])
    return offsets, arena.size


def largest_first(lives: Lives, sizes: Sizes) -> Offsets:
    """Each block as low as the larger ones allow, for as long as it lives. sizes: aligned

    (Pisarchyk, Lee 2020, "greedy by size")
    """
    offsets, end = dict[int, int](), 0
    order = sorted(lives.items(), key=lambda x: (-sizes[x[0]], x[1]))
    when = _spans([life for _, life in order])
    taken = np.empty((3, 0), np.int64)  # start, stop, and which of the blocks it is; by start
    for k, (b, _) in enumerate(order):
        size = sizes[b]
        starts, stops, _ = taken[:, _meet(when[k], when[taken[2]])]
        ends = np.maximum.accumulate(np.append(0, stops))  # of all that begins before a gap
        wide = np.flatnonzero(starts - ends[:-1] >= size)
        at = int(ends[wide[0]] if len(wide) else ends[-1])
        offsets[b], end = at, max(end, at + size)
        row = np.searchsorted(taken[0], at, side="right")
        taken = np.insert(taken, row, (at, at + size, k), axis=1)
    return offsets, end


def _spans(lives: Sequence[Life]) -> NDArray[np.int64]:
    """(first, last) of each part of each life; of a life with fewer parts the last one again."""
    parts = max(map(len, lives), default=1)
    spans = [(*life, *(life[-1:] * (parts - len(life)))) for life in lives]
    return np.array(spans, np.int64).reshape(len(lives), parts, 2)


def _meet(life: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of the others live at the same time as a block, in some part of both lives."""
    firsts, lasts = others[:, None, :, 0], others[:, None, :, 1]
    met: NDArray[np.bool_] = np.any((life[:, :1] <= lasts) & (firsts <= life[:, 1:]), axis=(1, 2))
    return met
