"""How a program deals the examples of its batch to the leaves of a fixed sum."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from graphc.lowering.program.program import Feed, Program


def cuts_by_leaves(program: Program) -> list[tuple[str, int, int]]:
    """(extent or '', static units, units of a leaf) of every dim that is fed leaf by leaf."""
    cuts: dict[tuple[str, int, int], None] = {}
    last = program.mesh.leaves.axes[-1] if program.mesh.leaves else ""
    fed = (program.buffers[x.result] for x in program.instructions if isinstance(x, Feed))
    for r in (r for b in fed for r in b.ranges):
        for (name, _), width in zip(r.axes, r.widths, strict=False):
            if name == last and width:
                cuts[r.extent, r.count, width] = None
    return list(cuts)


def present(cuts: list[tuple[str, int, int]], count: Callable[[str, int], int]) -> int:
    """How many leaves have an example; count: the number of units of an extent."""
    counts = ((count(x, n) if x else n, width) for x, n, width in cuts)
    return max((-(-n // width) for n, width in counts), default=1)


def all_present(program: Program) -> bool:
    """Whether every device has an example in every turn of every step."""
    leaves, mesh = program.mesh.leaves, program.mesh
    if leaves is None:
        return True
    places = prod(mesh.axis(a).size for a in leaves.axes)
    cuts = cuts_by_leaves(program)
    return not program.counts and present(cuts, lambda _, n: n) == places
