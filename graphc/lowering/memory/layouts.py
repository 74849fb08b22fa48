"""How the buffers of a program lie in the memory of their roots: as the ops of views say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graphc.lowering.program.instructions import Buffer, Instruction, Kernel
from graphc.lowering.program.strides import MemoryLayout


def layouts_of(
    instructions: Iterable[Instruction], buffers: Sequence[Buffer]
) -> dict[int, MemoryLayout]:
    """For each view that instructions make: which element of its root each of its entries is."""
    layouts: dict[int, MemoryLayout] = {}
    for x in instructions:
        if isinstance(x, Kernel) and buffers[x.result].kind == "view":
            operand = x.operands[0]
            inner = layouts.get(operand) or MemoryLayout.dense(buffers[operand].shape)
            layout = x.op.layout(inner)
            assert layout is not None, f"%{x.node} = {x.op.name} moves entries: it is no view"
            layouts[x.result] = layout
    return layouts
