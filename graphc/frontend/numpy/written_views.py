"""Writes to a view of an array, as writes to the array."""

from __future__ import annotations

from graphc.frontend.numpy.indexing import Item
from graphc.frontend.numpy.writes import with_slices
from graphc.ir.builder import Builder, Value
from graphc.ops.composites.support import reshaped
from graphc.ops.reshape import Reshape
from graphc.ops.shape import Reverse, Transpose
from graphc.ops.slicing import Slice
from graphc.support.errors import GraphcError


def into_view(f: Builder, base: Value, view: Value, x: Value, new: Value) -> Value:
    """x with the entries that a view shows replaced.

    base, view: an array and the view of it when that was made; the nodes between them say how
    """
    if view.name == base.name:
        return new
    node = view.node
    if len(node.operands) != 1:
        raise _unwritable()
    inner = Value(f, node.operands[0])
    below = _seen(f, base, inner, x)
    match node.op:
        case Reshape():
            part = reshaped(f, new, below.shape)
        case Transpose(perm=perm):
            part = f.transpose(new, [perm.index(i) for i in range(len(perm))])
        case Reverse(dim=dim):
            part = f.flip(new, dim)
        case Slice(dim=dim, start=start, stop=stop, step=step):
            items: list[Item] = [slice(None)] * below.rank
            items[dim] = slice(start, stop, step)
            part = with_slices(f, below, items, new)
        case _:
            raise _unwritable()
    return into_view(f, base, inner, x, part)


def _seen(f: Builder, base: Value, view: Value, x: Value) -> Value:
    """What a view of `base` is of x."""
    if view.name == base.name:
        return x
    node = view.node
    if len(node.operands) != 1:
        raise _unwritable()
    return f.add(node.op, (_seen(f, base, Value(f, node.operands[0]), x),))


def _unwritable() -> GraphcError:
    return GraphcError(
        "G0804",
        "a view is written to, and what it shows can't be told",
        help="write into the array itself, x[key] = v, or into a copy",
    )
