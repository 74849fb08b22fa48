"""How long each buffer of a program lives, and which buffers may share memory.

The instructions are in one line (with the bodies of loops in their places), so a lifetime is an
interval of positions. A value computed before a loop and read in it lives to the end of the loop,
since every turn reads it; a value that a loop passes on (an accumulator, a value kept for a later
loop) lives from the start of the loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from graphc.ir.op import Op
from graphc.lowering.program.program import (
    Buffer,
    Instruction,
    Kernel,
    Program,
    Start,
    Wait,
    reads,
    writes,
)

FOREVER = 1 << 62


@dataclass
class Lifetimes:
    """For each buffer that is no view: the positions at which it is first written and last read.

    reread: the last read that is not a wait for a collective that was begun earlier
    sent:   how many collectives read it
    loops:  the positions of each loop's body
    """

    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    reread: dict[int, int] = field(default_factory=dict)
    sent: Counter[int] = field(default_factory=Counter)
    loops: tuple[range, ...] = ()

    def loop(self, at: int) -> range:
        """The loop that a position lies in; an empty one for a position outside."""
        return next((x for x in self.loops if at in x), range(0))


def lifetimes(program: Program) -> Lifetimes:
    """The lifetimes of the buffers that a step uses. Outputs live forever."""
    lives, buffers, parts = Lifetimes(), program.buffers, program.parts
    ends = list(accumulate(map(len, parts)))
    lives.loops = tuple(range(ends[2 * i], ends[2 * i + 1]) for i in range(len(program.loops)))
    started: dict[int, Start] = {}
    for at, instruction in enumerate(x for part in parts for x in part):
        for x in reads(instruction):
            lives.last[buffers[x].root] = lives.reread[buffers[x].root] = at
        made = writes(instruction)
        if made is not None:
            lives.first.setdefault(buffers[made].root, at)
            lives.last.setdefault(buffers[made].root, at)
        match instruction:
            case Start(token=token, operand=x):
                started[token] = instruction
                lives.sent[buffers[x].root] += 1
            case Wait(token=token):
                start = started.pop(token)
                for x in (start.operand, start.result):
                    lives.last[buffers[x].root] = at
    for x in program.outputs.values():
        lives.last[buffers[x].root] = FOREVER
    _round_the_loops(lives)
    return lives


def _round_the_loops(lives: Lifetimes) -> None:
    for root, first in lives.first.items():
        last = lives.last[root]
        for loop in lives.loops:
            if first < loop.start and last in loop:
                lives.last[root] = loop.stop - 1
            elif first in loop and last >= loop.stop:
                lives.first[root] = loop.start


# -- one buffer on another -----------------------------------------------------------------------


def overwritten(
    at: int, instruction: Instruction, buffers: Sequence[Buffer], lives: Lifetimes
) -> int | None:
    """The operand that dies here and whose memory the result may take, or None."""
    match instruction:
        case Kernel(op=op, operands=operands, result=result) if op.in_place:
            candidates = overwritable(op, operands)
        case Start(op=op, operand=x, result=result) if op.in_place:
            operands = candidates = (x,)
        case _:
            return None
    if buffers[result].kind != "arena" or lives.first[result] != at:
        return None
    loop = lives.loop(at)
    if loop and lives.last[result] >= loop.stop:
        return None
    for x in candidates:
        views = any(buffers[y].root == x != y for y in operands)
        dies = _dies(at, buffers[x], lives, isinstance(instruction, Start))
        if not views and dies and _alike(buffers[x], buffers[result]):
            return x
    return None


def overwritable(op: Op, operands: tuple[int, ...]) -> tuple[int, ...]:
    """The operands that a kernel may write its result over, where the op says `in_place`."""
    if op.updates:
        return tuple(x for x in operands[:1] if x not in operands[1:])
    return operands


def _dies(at: int, x: Buffer, lives: Lifetimes, starting: bool) -> bool:
    """Whether nothing reads x after `at`, including a collective in progress."""
    if x.kind != "arena" or lives.reread[x.id] != at or lives.last[x.id] == FOREVER:
        return False
    if lives.sent[x.id] > 1 if starting else lives.last[x.id] != at:
        return False
    loop = lives.loop(at)
    return not loop or lives.first[x.id] >= loop.start


def _alike(x: Buffer, y: Buffer) -> bool:
    return x.shape == y.shape and x.dtype == y.dtype
