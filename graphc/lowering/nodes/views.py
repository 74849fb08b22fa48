"""Views of buffers that have no memory yet, or other memory than was thought: any layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from graphc.lowering.program.program import Buffer, Kernel, Program
from graphc.lowering.program.strides import MemoryLayout

Views: TypeAlias = Mapping[int, Kernel]  # the kernel that makes each view


def views_of(program: Program) -> dict[int, Kernel]:
    """The kernel that makes each view."""
    kernels = (x for x in program.instructions if isinstance(x, Kernel))
    return {x.result: x for x in kernels if program.buffers[x.result].kind == "view"}


def seen_through(view: int, layout: MemoryLayout, views: Views) -> MemoryLayout | None:
    """How a view lies if its root has a layout; None if its entries would have to be moved."""
    kernel = views.get(view)
    if kernel is None:
        return layout
    inner = seen_through(kernel.operands[0], layout, views)
    return None if inner is None else kernel.op.layout(inner)


def gapped(shape: Sequence[int]) -> MemoryLayout:
    """A layout in which no two neighboring dims are one, and every element says its indices."""
    room = MemoryLayout.dense(tuple(n + 1 for n in shape))
    return MemoryLayout(tuple(shape), room.strides)


def moves_dims(view: Buffer, base: Buffer, views: Views) -> bool:
    """Whether a view keeps the dims of its base apart, so that any layout of that will do."""
    return seen_through(view.id, gapped(base.shape), views) is not None


def box(view: Buffer, base: Buffer, views: Views) -> list[tuple[int, int]]:
    """Between which indices along each dim of its base a view reads; for views that move dims."""
    whole = gapped(base.shape)
    layout = seen_through(view.id, whole, views)
    assert layout is not None, f"{view.name} does not move dims of {base.name}"
    first = last = layout.offset
    last += sum((n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True))
    ends = zip(_indices(first, whole), _indices(last, whole), strict=True)
    return [(i, j + 1) for i, j in ends]


def _indices(element: int, layout: MemoryLayout) -> list[int]:
    """The index along each dim of an element of a gapped layout."""
    indices = []
    for stride in layout.strides:
        index, element = divmod(element, stride)
        indices.append(index)
    return indices
