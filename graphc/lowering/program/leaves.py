"""How a program deals the examples of its batch to the leaves of a fixed sum."""

from __future__ import annotations

from collections.abc import Callable

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


def ever_present(program: Program) -> tuple[int, int]:
    """How many leaves have an example: in the shortest batch, and in a full one."""
    most = present(cuts_by_leaves(program), lambda _, n: n)
    return (1 if program.counts else most), most
