"""Whether a Program ever reads memory that does not hold what it means: found without running it.

Every byte of the arena is marked with the buffer that was last written there. The step is gone
through twice, each loop body twice too: a read must find the mark of its own buffer, a running sum
that of the turn before, and nobody may write where a collective is under way. This is what a race
would show now and then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphc.lowering.memory.memory_plan import MemoryPlan, plan_memory
from graphc.lowering.program.program import (
    Instruction,
    Kernel,
    Loop,
    Program,
    Start,
    Wait,
    reads,
    writes,
)
from graphc.ops.collective import Accumulation, AllReduce, Keep, Reduce, ReduceScatter, Stack


class Misread(AssertionError):
    """A read of memory that holds something else."""


GATHERS = (Accumulation, Keep, Stack, AllReduce, Reduce, ReduceScatter)  # as kernels in a loop


@dataclass
class Footprint:
    """The marks. busy: per collective under way, the buffers that it reads and writes."""

    program: Program
    marks: np.ndarray[Any, np.dtype[np.int64]] = field(init=False)
    plan: MemoryPlan = field(init=False)
    written: set[int] = field(default_factory=set)  # buffers outside the arena
    busy: dict[int, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.plan = plan_memory(self.program)
        self.marks = np.full(self.plan.arena, -1)
        self.written = set(self.program.variables.values())

    def complaints(self) -> Iterator[str]:
        """A sentence for every read of memory that holds something else, and the like."""
        for x in self.program.setup:
            yield from self._do(x, 0)
        for _ in range(2):
            for x, turn in _step(self.program):
                yield from self._do(x, turn)
            for name, buffer in self.program.outputs.items():
                yield from self._read(buffer, f"output '{name}'")

    def _do(self, x: Instruction, turn: int) -> Iterator[str]:
        match x:
            case Wait(token=token):
                operand, result = self.busy.pop(token)
                yield from self._read(result, f"collective {token}")
                return
            case Kernel(op=op, result=y) if turn and isinstance(op, GATHERS):
                yield from self._read(y, f"what {x.node} holds of the turn before")
        for buffer in reads(x):
            yield from self._read(buffer, _name(x))
        made = writes(x)
        if made is not None and self.program.buffers[made].kind != "view":
            yield from self._write(made, _name(x))
        match x:
            case Start(token=token, operand=operand, result=result):
                self.busy[token] = (operand, result)

    def _read(self, buffer: int, who: str) -> Iterator[str]:
        root = self.program.buffers[buffer].root
        if self.program.buffers[root].kind != "arena":
            if root not in self.written:
                yield f"{who} reads {self._shown(root)} before it is written"
        elif (self.marks[self._span(root)] != root).any():
            yield f"{who} reads {self._shown(root)}, where something else lies"

    def _write(self, buffer: int, who: str) -> Iterator[str]:
        root = self.program.buffers[buffer].root
        for token, in_use in self.busy.items():
            if any(self._meet(root, self.program.buffers[b].root) for b in in_use):
                yield f"{who} writes {self._shown(root)}, which collective {token} uses"
        if self.program.buffers[root].kind == "arena":
            self.marks[self._span(root)] = root
        self.written.add(root)

    def _meet(self, a: int, b: int) -> bool:
        x, y = self.program.buffers[a], self.program.buffers[b]
        if x.kind != "arena" or y.kind != "arena":
            return a == b
        one, other = self._span(a), self._span(b)
        return bool(one.start < other.stop and other.start < one.stop)

    def _span(self, root: int) -> slice:
        start = self.plan.offsets.get(root, 0)
        return slice(start, start + self.program.buffers[root].bytes)

    def _shown(self, root: int) -> str:
        return f"buffer {root} ({self.program.buffers[root].name})"


def _step(program: Program) -> Iterator[tuple[Instruction, int]]:
    """The instructions of a step with their turn; two turns stand for all."""
    for x in (*program.body, *program.commit):
        inside, turns = (x.body, min(2, x.turns)) if isinstance(x, Loop) else ((x,), 1)
        yield from ((y, turn) for turn in range(turns) for y in inside)


def _name(x: Instruction) -> str:
    match x:
        case Kernel(node=node) | Start(node=node):
            return f"%{node}"
        case _:
            return type(x).__name__


def check_memory(program: Program) -> None:
    """Raise Misread where a program would read what it must not."""
    found = list(Footprint(program).complaints())
    if found:
        raise Misread("\n".join(found))
