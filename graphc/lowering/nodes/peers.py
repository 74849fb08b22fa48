"""Which variables the devices of one process have once, as they reach each other's memory."""

from __future__ import annotations

from collections.abc import Mapping

from graphc.ir.placement import R
from graphc.lowering.program.program import Program


def alike(programs: Mapping[str, Program]) -> frozenset[str]:
    """The variables that are equal on all devices, in every program."""
    first = next(iter(programs.values()))
    axes = [a.name for a in first.mesh.space]
    return frozenset(
        name
        for name, t in first.variable_types.items()
        if axes and all(t.placement[a] == R for a in axes)
    )
