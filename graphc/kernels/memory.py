"""Where the buffers of a lowered program lie: those that fusion has left, in a new arena."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from graphc.arena import Arena, aligned
from graphc.program import Buffer

FOREVER = 1 << 62


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
    """(offset in the arena by buffer, bytes of the arena)."""
    lives = _lives(timeline, outputs)
    lives = {b: life for b, life in lives.items() if buffers[b].kind == "arena"}
    born: dict[int, list[int]] = defaultdict(list)
    dies: dict[int, list[int]] = defaultdict(list)
    for b, (first, last) in lives.items():
        born[first].append(b)
        dies[last].append(b)
    arena, found = Arena(), dict[int, int]()
    for at in range(len(timeline.touched)):
        for b in sorted(born[at], key=lambda b: -buffers[b].bytes):
            found[b] = arena.take(aligned(buffers[b].bytes))
        for b in dies[at]:
            arena.give(found[b], aligned(buffers[b].bytes))
    return found, arena.size


def _lives(timeline: Timeline, outputs: Iterable[int]) -> Mapping[int, tuple[int, int]]:
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
