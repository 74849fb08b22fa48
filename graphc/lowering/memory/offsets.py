"""Where the buffers of a lowered program lie: those that fusion has left, in a new arena."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from graphc.lowering.program.arena import Arena, aligned
from graphc.lowering.program.program import Buffer

FOREVER = 1 << 62
MOST = 1000  # buffers that are placed by size: it takes the square of their number

Life: TypeAlias = tuple[tuple[int, int], ...]  # first and last positions, in order
Lives: TypeAlias = Mapping[int, Life]
Buffers: TypeAlias = Sequence[Buffer] | Mapping[int, Buffer]
Places: TypeAlias = tuple[dict[int, int], int]  # offset by buffer, and bytes in all


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
    ways = [_in_order(lives, buffers, len(timeline.touched))]
    if len(lives) <= MOST:
        ways.append(_largest_first(lives, buffers))
    return min(ways, key=lambda way: way[1])


def _in_order(lives: Lives, buffers: Buffers, positions: int) -> Places:
    """Each buffer where one is free when it is first touched."""
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


def _largest_first(lives: Lives, buffers: Buffers) -> Places:
    """Each buffer as low as those before it leave room, for as long as it lives.

    (Pisarchyk, Lee 2020, "greedy by size")
    """
    found, end = dict[int, int](), 0
    taken: list[tuple[int, int, Life]] = []  # start, stop, when; by start
    for b, life in sorted(lives.items(), key=lambda x: (-buffers[x[0]].bytes, x[1])):
        size, at = aligned(buffers[b].bytes), 0
        for start, stop, when in taken:
            if _meet(life, when):
                if start - at >= size:
                    break
                at = max(at, stop)
        found[b], end = at, max(end, at + size)
        insort(taken, (at, at + size, life))
    return found, end


def _meet(life: Life, other: Life) -> bool:
    """Whether two buffers live at the same time."""
    return any(a <= last and first <= b for a, b in life for first, last in other)


def _lives(timeline: Timeline, outputs: Iterable[int]) -> Lives:
    times: dict[int, list[int]] = defaultdict(list)
    for at, roots in enumerate(timeline.touched):
        for b in roots:
            times[b].append(at)
    for b, start, stop in timeline.spans:
        times[b] += (start, stop)
    ends = {b: (min(t), max(t)) for b, t in times.items()}
    ends |= {b: (ends[b][0], FOREVER) for b in outputs if b in ends}
    apart: dict[int, Life] = {}
    for turns in timeline.loops:
        loop = range(turns[0].start, turns[-1].stop)
        for b, (first, last) in ends.items():
            if first < loop.start and last in loop:
                ends[b] = first, loop.stop - 1
            elif first in loop and last >= loop.stop:
                ends[b] = loop.start, last
            elif first in loop:
                each = ([t for t in times[b] if t in turn] for turn in turns)
                apart[b] = tuple((min(t), max(t)) for t in each if t)
    return {b: apart.get(b, (life,)) for b, life in ends.items()}
