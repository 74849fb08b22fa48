"""What must be under way at the same time: exchanges over slow links, and the rest of the step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphc.ir.placement import LINKS, Mesh, Partial
from graphc.lowering.program.program import Instruction, Kernel, Program, Start, Wait, reads, writes
from graphc.ops.contract import Einsum


def slow_sums(part: Sequence[Instruction], mesh: Mesh) -> list[Start]:
    """The sums over links slower than memory that a part of a program begins, in order."""
    starts = [x for x in part if isinstance(x, Start) and isinstance(x.op.states[0], Partial)]
    return [x for x in starts if mesh.link(x.op.axes) != LINKS[0]]


def products_meanwhile(part: Sequence[Instruction], start: Start) -> int:
    """The products between the beginning of a collective and the wait for it."""
    begin, end = part.index(start), part.index(Wait(start.token))
    return sum(isinstance(x, Kernel) and isinstance(x.op, Einsum) for x in part[begin:end])


def complaints(program: Program) -> Iterator[str]:
    """Sums that are waited for before the last sum of their part is begun, which needs none of
    them. A sum that keeps its operand may be: only two of these are under way at a time."""
    for part in program.parts:
        sums = slow_sums(part, program.mesh)
        for i, start in enumerate(sums):
            needed = _needed(part, start, program)
            later = [x for x in sums[i + 1 :] if x.token not in needed]
            if needed or not later or not start.op.in_place:
                continue
            if part.index(Wait(start.token)) < part.index(later[-1]):
                yield f"%{start.node} is waited for before %{later[-1].node} is begun"


def _needed(part: Sequence[Instruction], start: Start, program: Program) -> set[int]:
    """The sums over slow links that need the result of a collective."""
    made = {program.buffers[start.result].root}
    found = set[int]()
    for x in part[part.index(start) + 1 :]:
        if any(program.buffers[b].root in made for b in reads(x)):
            target = writes(x)
            made |= {program.buffers[target].root} if target is not None else set()
            found |= (
                {x.token} if isinstance(x, Start) and x in slow_sums([x], program.mesh) else set()
            )
    return found
