"""Views of buffers, as indices of the tensor that they are views of.

A view is given by strides, as those of numpy.ndarray. A dim of length 1 has its neighbour's stride,
so no stride identifies it: its index is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphc.lowering.program.program import Buffer
from graphc.lowering.program.strides import MemoryLayout


@dataclass(frozen=True)
class Sight:
    """Entry v of a view is the entry of a dense tensor whose index along dim d is
    `first[d] + sum(v[k] * step for k, (d', step) in enumerate(along) if d' == d)`.

    along: of each dim of the view; None where it repeats entries, or has length 1
    """

    first: tuple[int, ...]
    along: tuple[tuple[int, int] | None, ...]

    def strides(self, layout: MemoryLayout) -> tuple[int, ...]:
        """The view's strides, where the tensor lies otherwise."""
        return tuple(0 if x is None else x[1] * layout.strides[x[0]] for x in self.along)

    def offset(self, layout: MemoryLayout) -> int:
        """Where the view's first entry lies, where the tensor lies otherwise."""
        pairs = zip(self.first, layout.strides, strict=True)
        return layout.offset + sum(i * s for i, s in pairs)

    def last(self, shape: Sequence[int]) -> list[int]:
        """The largest index along each dim that a view of that shape (without zeros) reaches."""
        found = list(self.first)
        for x, n in zip(self.along, shape, strict=True):
            if x is not None:
                found[x[0]] += x[1] * (n - 1)
        return found


def sight(view: Buffer, shape: Sequence[int]) -> Sight | None:
    """What a view sees of a dense tensor; None where it goes on from one dim into the next."""
    along: list[tuple[int, int] | None] = []
    for stride, n in zip(view.strides, view.shape, strict=True):
        goes = n > 1 and stride != 0
        along.append(_along(stride, shape) if goes else None)
        if goes and along[-1] is None:
            return None
    found = Sight(tuple(_first(view, shape)), tuple(along))
    ends = zip(found.last(view.shape), shape, strict=True)
    return found if 0 in view.shape or all(last < n for last, n in ends) else None


def _along(stride: int, shape: Sequence[int]) -> tuple[int, int] | None:
    """The dim of a dense tensor along which a stride goes, and by how many entries."""
    dense = MemoryLayout.dense(tuple(shape)).strides
    for d, (unit, n) in enumerate(zip(dense, shape, strict=True)):
        if unit <= stride < unit * n:
            return (d, stride // unit) if stride % unit == 0 else None
    return None


def _first(view: Buffer, shape: Sequence[int]) -> list[int]:
    """The index, in a dense tensor of that shape, of the first entry of a view of it."""
    at, found = view.offset // view.dtype.bytes, []
    for stride in MemoryLayout.dense(tuple(shape)).strides:
        found.append(at // stride if stride else 0)
        at -= found[-1] * stride
    return found


def moves_dims(view: Buffer, base: Buffer) -> bool:
    """Whether a view only slices, moves, repeats, divides and drops dims of its base."""
    return sight(view, base.shape) is not None


def box(view: Buffer, base: Buffer) -> list[tuple[int, int]]:
    """Between which indices along each dim of its base a view reads; for views that move dims."""
    seen = sight(view, base.shape)
    assert seen is not None, f"{view.name} does not move dims of {base.name}"
    return [(i, j + 1) for i, j in zip(seen.first, seen.last(view.shape), strict=True)]
