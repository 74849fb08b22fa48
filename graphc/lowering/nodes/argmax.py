"""Argmax and argmin as nodes."""

from __future__ import annotations

from graphc.ir.types import BOOL, I32, DType
from graphc.lowering.nodes.nodes import LoopNode, Read, ReduceNode
from graphc.lowering.nodes.values import ValueTable
from graphc.lowering.program.program import Kernel
from graphc.lowering.program.strides import MemoryLayout
from graphc.ops.ordering import Argmax, Argmin
from graphc.ops.reduce import highest, lowest


def found(v: ValueTable, x: Kernel, op: Argmax | Argmin) -> list[LoopNode]:
    """The first index at which the entry is the extreme one, or, as in NumPy, the first NaN."""
    read = v.read(x.operands[0])
    shape, dim, dtype = read.layout.shape, op.dim, read.dtype
    if shape[dim] == 1:
        return [v.map(x, "fill", (), v.wrote(x.result))]
    kept = (*shape[:dim], *shape[dim + 1 :])
    kind, first = ("max", lowest) if isinstance(op, Argmax) else ("min", highest)
    nodes: list[LoopNode] = []

    def made(function: str, reads: tuple[Read, ...], dtype: DType, number: int = 0) -> Read:
        b = v.temporary(shape, dtype, x.result)
        nodes.append(v.map(x, function, reads, v.wrote(b), number=number))
        return v.read(b)

    extreme = v.temporary(kept, dtype, x.result)
    at = v.wrote(extreme)
    nodes.append(ReduceNode(shape, (dim,), kind, (read,), at, dtype, x, first(dtype.numpy)))  # type: ignore[arg-type]
    hit = made("eq", (read, _repeated(v.read(extreme), shape, dim)), BOOL)
    if dtype.kind == "f":
        hit = made("or", (hit, made("ne", (read, read), BOOL)), BOOL)
    index = made("iota", (), I32, dim)
    nowhere = made("fill", (), I32, shape[dim])
    index_of_hit = made("select", (hit, index, nowhere), I32)
    result = v.wrote(x.result)
    return [*nodes, ReduceNode(shape, (dim,), "min", (index_of_hit,), result, I32, x, shape[dim])]


def _repeated(read: Read, shape: tuple[int, ...], dim: int) -> Read:
    """The result of a fold along a dim, repeated for each entry that was folded."""
    along = read.layout.strides
    strides = (*along[:dim], 0, *along[dim:])
    return Read(read.value, MemoryLayout(shape, strides, read.layout.offset), read.dtype)
