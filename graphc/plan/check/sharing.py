"""The arena: two values that live at one time do not lie at one place."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator
from typing import TypeAlias

from graphc.lowering.program.lifetimes import lifetimes, overwritten
from graphc.lowering.program.program import Program

MemoryRange: TypeAlias = tuple[int, int, int]  # start, stop, buffer


def memory_is_not_shared(program: Program) -> Iterator[str]:
    """No two buffers that live at one time overlap, but a result on the operand that dies there."""
    buffers, lives = program.buffers, lifetimes(program)
    born: dict[int, list[int]] = defaultdict(list)
    ends: dict[int, set[MemoryRange]] = defaultdict(set)
    for b, first in lives.first.items():
        if buffers[b].kind == "arena" and buffers[b].bytes:
            born[first].append(b)
    alive: list[MemoryRange] = []  # in order, and apart from each other
    for at, x in enumerate(x for part in program.parts for x in part):
        heir = overwritten(at, x, buffers, lives) if at in born else None
        for b in born.get(at, ()):
            range_ = buffers[b].offset, buffers[b].offset + buffers[b].bytes, b
            for other in _met(alive, range_):
                if other[:2] != range_[:2] or other[2] != heir:
                    yield f"{_shown(program, b)} and {_shown(program, other[2])} overlap in memory"
                    return
                alive.remove(other)
                ends[lives.last[other[2]]].discard(other)
            insort(alive, range_)
            ends[lives.last[b]].add(range_)
        for range_ in ends.pop(at, ()):
            alive.remove(range_)


def _met(alive: list[MemoryRange], range_: MemoryRange) -> list[MemoryRange]:
    """Of places that are apart, those that a new one meets."""
    start, stop, _ = range_
    first = bisect_left(alive, (start, 0, 0))
    first -= bool(first and alive[first - 1][1] > start)
    end = bisect_left(alive, (stop, 0, 0))
    return alive[first:end]


def _shown(program: Program, b: int) -> str:
    return f"buffer {b} ({program.buffers[b].name})"
