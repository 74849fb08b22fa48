"""What views of a buffer see of it."""

from __future__ import annotations

from graphc.kernels.values import first_entry
from graphc.layout import MemoryLayout
from graphc.program import Buffer


def moves_dims(view: Buffer, base: Buffer) -> bool:
    """Whether a view only moves, repeats and drops dims of its base."""
    whole = MemoryLayout.dense(base.shape)
    dims = {s: n for s, n in zip(whole.strides, base.shape, strict=True) if n > 1}
    pairs = zip(view.strides, view.shape, strict=True)
    return all(not s or n == 1 or dims.get(s, 0) >= n for s, n in pairs)


def box(view: Buffer, base: Buffer) -> list[tuple[int, int]]:
    """What of each dim of its base a view reads."""
    sizes = {s: n for s, n in zip(view.strides, view.shape, strict=True) if n > 1}
    strides = MemoryLayout.dense(base.shape).strides
    first = first_entry(view, base.shape)
    return [(i, i + sizes.get(s, 1)) for i, s in zip(first, strides, strict=True)]
