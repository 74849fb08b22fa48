"""The memory plan of a program: the offset of each buffer in the arena.

Blocks are allocated in the order of the instructions, best fit first; see
graphc.lowering.program.lifetimes.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from graphc.lowering.program.arena import Arena, aligned
from graphc.lowering.program.lifetimes import lifetimes, overwritten
from graphc.lowering.program.program import Program, writes


def plan_arena(program: Program) -> Program:
    """The program with its buffers' offsets in the arena, and the arena's size in bytes."""
    lives, buffers = lifetimes(program), program.buffers
    arena = Arena()
    offsets: dict[int, int] = {}
    born: dict[int, list[int]] = defaultdict(list)
    dies: dict[int, list[int]] = defaultdict(list)
    for root, first in lives.first.items():
        if buffers[root].kind == "arena":
            born[first].append(root)
    for at, instruction in enumerate(x for part in program.parts for x in part):
        heir = overwritten(at, instruction, buffers, lives)
        for root in born.pop(at, ()):
            if heir is not None and root == writes(instruction):
                offsets[root] = offsets[heir]
                dies[lives.last[heir]].remove(heir)
            else:
                offsets[root] = arena.take(aligned(buffers[root].bytes))
            dies[lives.last[root]].append(root)
        for root in dies.pop(at, ()):
            arena.give(offsets[root], aligned(buffers[root].bytes))
    placed = (replace(b, offset=offsets.get(b.id, 0)) if b.kind == "arena" else b for b in buffers)
    return replace(program, buffers=tuple(placed), arena=arena.size)
