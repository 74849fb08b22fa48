"""Lowering: from a program to calls of kernels, and instructions that stay with the host.

What a loop nest cannot do stays with the host: feeding, collectives between processes, and ops
without a nest. Between two of these, everything is one native region.
Nothing has a place in memory before the last stage.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphc.lowering import target as targets
from graphc.lowering.draft import Draft
from graphc.lowering.fusion.checks_first import checks_first
from graphc.lowering.fusion.stages import fuse, kernels
from graphc.lowering.kernel.lowered import Lowered
from graphc.lowering.memory.pointers import placed
from graphc.lowering.nodes.regions import to_nodes
from graphc.lowering.program.program import Program
from graphc.lowering.side_by_side import side_by_side
from graphc.lowering.target import LoweringTarget
from graphc.lowering.tiling.tiled_kernels import tile

STAGES = {  # in their order; `graphc show --after` prints what each leaves
    "nodes": "instructions become loop nests over values, in regions between what the host runs",
    "fuse": "nodes that one kernel runs are grouped; what is cheap to make again is not stored",
    "checks": "what checks of indices need runs before the first write of a variable",
    "kernels": "groups become loops with statements over registers",
    "row-tiling": "kernels that pass the rows of large values to each other run block by block",
    "library": "products that a library makes are taken apart from the code on their results",
    "side-by-side": "nests that do not need each other stand together, for one launch of several",
    "memory": "what is left in memory gets its place in the arena",
}


def lower(
    program: Program, shared_variables: frozenset[str] | None = None, apart: bool = False,
    here: int | None = None, target: LoweringTarget | None = None,
) -> Lowered:  # fmt: skip
    """The native form of a program.

    shared_variables: of devices that reach each other's memory, the variables that they have once;
    None of devices that do not
    apart: whether each buffer has memory of its own, but for what other devices reach
    here: how many devices a process has, ranks in a row; None: all of the mesh
    target: what the kernels are made for; None: a CPU
    """
    *_, (_, draft) = stages(program, shared_variables, here, target)
    return placed(draft, apart)


def stages(
    program: Program, shared_variables: frozenset[str] | None = None, here: int | None = None,
    target: LoweringTarget | None = None,
) -> Iterator[tuple[str, Draft]]:  # fmt: skip
    """The draft after each stage but the last; each changes it in place."""
    draft = to_nodes(program, shared_variables, here, target or targets.CPU)
    yield "nodes", draft
    fuse(draft)
    yield "fuse", draft
    checks_first(draft)
    yield "checks", draft
    kernels(draft)
    yield "kernels", draft
    tile(draft)
    yield "row-tiling", draft
    if draft.target.library is not None:  # as on some GPUs
        from graphc.lowering.library import to_library

        to_library(draft)
    yield "library", draft
    side_by_side(draft)
    yield "side-by-side", draft
