"""The offsets of a lowered program's buffers in a new arena: those that fusion has left."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphc.lowering.program.arena import Arena, aligned
from graphc.lowering.program.program import Buffer

FOREVER = 1 << 62
MOST = 1000  # buffers that are placed by size: it takes the square of their number

Life: TypeAlias = tuple[tuple[int, int], ...]  # first and last positions, in order
Lives: TypeAlias = Mapping[int, Life]
Buffers: TypeAlias = Sequence[Buffer] | Mapping[int, Buffer]
Offsets: TypeAlias = tuple[dict[int, int], int]  # offset by buffer, and bytes in all


@dataclass
class Timeline:
    """What touches which buffer, position by position.

    loops: of each the positions of a turn, or where the first turn runs other kernels than later
           ones, those of the first and of a later turn. No turn runs both: what does not outlive a
           turn need not be kept from one to the other.
    """

    touched: list[set[int]] = field(default_factory=list)  # roots, by position
    loops: list[tuple[range, ...]] = field(default_factory=list)
    spans: list[tuple[int, int, int]] = field(default_factory=list)  # root, from, to: collectives

    def loop_at(self, position: int) -> tuple[range, ...]:
        """The loop that a position lies in, as in `loops`; () outside."""
        k = bisect_right(self.loops, position, key=lambda turns: turns[0].start) - 1
        inside = k >= 0 and position < self.loops[k][-1].stop
        return self.loops[k] if inside else ()

    def add(self, roots: Iterable[int]) -> int:
        """One more position."""
        self.touched.append(set(roots))
        return len(self.touched) - 1


def offsets(
    timeline: Timeline, buffers: Buffers, outputs: Iterable[int],
    elsewhere: Container[int] = (),
) -> tuple[dict[int, int], int]:  # fmt: skip
    """(offset in the arena by buffer, bytes of the arena): by the way that takes least.

    elsewhere: buffers that have memory of their own
    """
    lives = {
        b: life
        for b, life in _lives(timeline, outputs).items()
        if buffers[b].kind == "arena" and b not in elsewhere
    }
    plans = [_in_order(lives, buffers, len(timeline.touched))]
    if len(lives) <= MOST:
        plans.append(_largest_first(lives, buffers))
    return min(plans, key=lambda plan: plan[1])


def _in_order(lives: Lives, buffers: Buffers, positions: int) -> Offsets:
    """Each buffer in a free place at its first use."""
    born: dict[int, list[int]] = defaultdict(list)
    dies: dict[int, list[int]] = defaultdict(list)
    for b, life in lives.items():
        born[life[0][0]].append(b)
        dies[life[-1][1]].append(b)
    arena, found = Arena(), dict[int, int]()
    for at in range(positions):
        for b in sorted(born[at], key=lambda b: -buffers[b].bytes):
            found[b] = arena.take(aligned(buffers[b].bytes))
        for b in dies[at]:
            arena.give(found[b], aligned(buffers[b].bytes))
    return found, arena.size


def _largest_first(lives: Lives, buffers: Buffers) -> Offsets:
    """Each buffer as low as the larger ones allow, for as long as it lives.

    (Pisarchyk, Lee 2020, "greedy by size")
    """
    found, end = dict[int, int](), 0
    order = sorted(lives.items(), key=lambda x: (-buffers[x[0]].bytes, x[1]))
    when = _spans([life for _, life in order])
    taken = np.empty((3, 0), np.int64)  # start, stop, and which of the buffers it is; by start
    for k, (b, _) in enumerate(order):
        size = aligned(buffers[b].bytes)
        starts, stops, _ = taken[:, _meet(when[k], when[taken[2]])]
        ends = np.maximum.accumulate(np.append(0, stops))  # of all that begins before a gap
        wide = np.flatnonzero(starts - ends[:-1] >= size)
        at = int(ends[wide[0]] if len(wide) else ends[-1])
        found[b], end = at, max(end, at + size)
        row = np.searchsorted(taken[0], at, side="right")
        taken = np.insert(taken, row, (at, at + size, k), axis=1)
    return found, end


def _spans(lives: Sequence[Life]) -> NDArray[np.int64]:
    """(first, last) of each part of each life; of a life with fewer parts the last one again."""
    parts = max(map(len, lives), default=1)
    spans = [(*life, *(life[-1:] * (parts - len(life)))) for life in lives]
    return np.array(spans, np.int64).reshape(len(lives), parts, 2)


def _meet(life: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of the others live at the same time as a buffer, in some part of both lives."""
    firsts, lasts = others[:, None, :, 0], others[:, None, :, 1]
    met: NDArray[np.bool_] = np.any((life[:, :1] <= lasts) & (firsts <= life[:, 1:]), axis=(1, 2))
    return met


def _lives(timeline: Timeline, outputs: Iterable[int]) -> Lives:
    times: dict[int, list[int]] = defaultdict(list)
    for at, roots in enumerate(timeline.touched):
        for b in roots:
            times[b].append(at)
    for b, start, stop in timeline.spans:
        times[b] += (start, stop)
    ends = {b: (min(t), max(t)) for b, t in times.items()}
    ends |= {b: (ends[b][0], FOREVER) for b in outputs if b in ends}
    return {b: _round_the_loops(*end, times[b], timeline) for b, end in ends.items()}


def _round_the_loops(first: int, last: int, times: Sequence[int], timeline: Timeline) -> Life:
    """A life that may begin or end in a loop; of one turn, that of the first and of a later."""
    begins, ends = timeline.loop_at(first), timeline.loop_at(last)
    if begins and begins == ends:
        each = ([t for t in times if t in turn] for turn in begins)
        return tuple((min(t), max(t)) for t in each if t)
    first = begins[0].start if begins else first
    return ((first, ends[-1].stop - 1 if ends else last),)
