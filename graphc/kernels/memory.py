"""Where the buffers of a lowered program lie: those that fusion has left, in a new arena."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from graphc.arena import Arena, aligned
from graphc.program import Buffer

FOREVER = 1 << 62
MOST = 1000  # buffers that are placed by size: it takes the square of their number

Lives: TypeAlias = Mapping[int, tuple[int, int]]  # first and last position, by buffer
Places: TypeAlias = tuple[dict[int, int], int]  # offset by buffer, and bytes in all


@dataclass
class Timeline:
    """What touches which buffer, position by position; loops are ranges of positions."""

    touched: list[set[int]] = field(default_factory=list)  # roots, by position
    loops: list[range] = field(default_factory=list)
    spans: list[tuple[int, int, int]] = field(default_factory=list)  # root, from, to: collectives

    def add(self, roots: Iterable[int]) -> int:
        """One more position."""
        self.touched.append(set(roots))
        return len(self.touched) - 1


def offsets(
    timeline: Timeline, buffers: Sequence[Buffer], outputs: Iterable[int]
) -> tuple[dict[int, int], int]:
    """(offset in the arena by buffer, bytes of the arena): by the way that takes least."""
    lives = _lives(timeline, outputs)
    lives = {b: life for b, life in lives.items() if buffers[b].kind == "arena"}
    ways = [_in_order(lives, buffers, len(timeline.touched))]
    if len(lives) <= MOST:
        ways.append(_largest_first(lives, buffers))
    return min(ways, key=lambda way: way[1])


def _in_order(lives: Lives, buffers: Sequence[Buffer], positions: int) -> Places:
    """Each buffer where one is free when it is first touched."""
    born: dict[int, list[int]] = defaultdict(list)
    dies: dict[int, list[int]] = defaultdict(list)
    for b, (first, last) in lives.items():
        born[first].append(b)
        dies[last].append(b)
    arena, found = Arena(), dict[int, int]()
    for at in range(positions):
        for b in sorted(born[at], key=lambda b: -buffers[b].bytes):
            found[b] = arena.take(aligned(buffers[b].bytes))
        for b in dies[at]:
            arena.give(found[b], aligned(buffers[b].bytes))
    return found, arena.size


def _largest_first(lives: Lives, buffers: Sequence[Buffer]) -> Places:
    """Each buffer as low as those before it leave room, for as long as it lives.

    (Pisarchyk, Lee 2020, "greedy by size")
    """
    found, end = dict[int, int](), 0
    taken: list[tuple[int, int, int, int]] = []  # start, stop, first, last; by start
    for b, (first, last) in sorted(lives.items(), key=lambda x: (-buffers[x[0]].bytes, x[1])):
        size, at = aligned(buffers[b].bytes), 0
        for start, stop, since, until in taken:
            if since <= last and first <= until:
                if start - at >= size:
                    break
                at = max(at, stop)
        found[b], end = at, max(end, at + size)
        insort(taken, (at, at + size, first, last))
    return found, end


def _lives(timeline: Timeline, outputs: Iterable[int]) -> Lives:
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for at, roots in enumerate(timeline.touched):
        for b in roots:
            first.setdefault(b, at)
            last[b] = at
    for b, start, stop in timeline.spans:
        first[b], last[b] = min(first.get(b, start), start), max(last.get(b, stop), stop)
    for b in outputs:
        if b in first:
            last[b] = FOREVER
    for loop in timeline.loops:
        for b in first:
            if first[b] < loop.start and last[b] in loop:
                last[b] = loop.stop - 1
            elif first[b] in loop and last[b] >= loop.stop:
                first[b] = loop.start
    return {b: (first[b], last[b]) for b in first}
