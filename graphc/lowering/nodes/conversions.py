"""Local conversions as nodes: what a device does with its own part, at its own position.

A slice that every device takes from another entry on is read through a section; what is masked is
compared with a number that is loaded. A sum by the tree over turns joins the pieces that its turn
ends, as many as a number says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from graphc.ir.leaf_tree import carries, pieces
from graphc.ir.op import Op
from graphc.ir.orders import Order
from graphc.ir.placement import Partial, ReduceOp, Replicated, Split
from graphc.ir.types import BOOL, F32, I64, DType
from graphc.lowering.kernel.positions import PositionNumber, every_cut
from graphc.lowering.nodes.nodes import LoopNode, Read, Version
from graphc.lowering.nodes.section_table import Shift
from graphc.lowering.nodes.sections import moved_by, number, section, written
from graphc.lowering.nodes.values import ValueTable
from graphc.lowering.program.program import Kernel, Range
from graphc.lowering.program.strides import MemoryLayout
from graphc.ops.collective import Accumulation, Conversion, Keep, Mask, Recall
from graphc.ops.replicas import OwnSize
from graphc.ops.settle import Settle
from graphc.ops.source import DimSize, Iota, Random

COMBINE: dict[ReduceOp, str] = {"sum": "add", "max": "maximum", "min": "minimum"}
OF_BOOLS: dict[ReduceOp, str] = {"sum": "or", "max": "or", "min": "and"}
TURN = PositionNumber("turn")


def combine(how: ReduceOp, dtype: DType) -> str:
    """The function of two values that are combined, as NumPy has it."""
    return (OF_BOOLS if dtype == BOOL else COMBINE)[how]


class NodeMaker:
    """The nodes of one instruction, made one after the other over one domain."""

    def __init__(self, v: ValueTable, x: Kernel, shape: tuple[int, ...] | None = None) -> None:
        self.v, self.x = v, x
        self.shape = v.buffers[x.result].shape if shape is None else shape
        self.nodes: list[LoopNode] = []

    def map(
        self, function: str, reads: Sequence[Read], dtype: DType, number: float | int | bool = 0
    ) -> Read:
        """The read of what a map over the domain gives."""
        b = self.v.temporary(self.shape, dtype, self.x.result)
        value = self.v.wrote(b)
        node = self.v.map(self.x, function, tuple(reads), value, number=number)
        self.nodes.append(node)
        return self.v.read(b)

    def end(
        self, function: str, reads: Sequence[Read], result: Version | None = None,
        target: MemoryLayout | None = None,
    ) -> list[LoopNode]:  # fmt: skip
        """All nodes: the last one makes the result."""
        value = self.v.wrote(self.x.result) if result is None else result
        return [*self.nodes, self.v.map(self.x, function, tuple(reads), value, target)]

    def number(self, position: PositionNumber) -> Read:
        return number(self.v, position, self.shape)

    def below(self, dim: int, length: PositionNumber) -> Read:
        """Whether the index along a dim is below a number."""
        index = self.map("iota", (), I64, dim)
        return self.map("lt", (index, self.number(length)), BOOL)

    def guarded(self, read: Read, where: Read) -> Read:
        """What is loaded where a condition holds, and 0 elsewhere."""
        return self.map("guarded", (read, where), read.dtype)


def is_whole(v: ValueTable, r: Range, length: int) -> bool:
    """Whether every device holds so many entries of a dim, in every step."""
    return not r.extent and {n for _, n in every_cut(r, v.mesh)} == {length}


def converted(v: ValueTable, x: Kernel) -> list[LoopNode] | None:
    """The nodes of a local conversion; None where it stays with the host."""
    op, read = x.op, v.read(x.operands[0])
    match op:
        case Mask():
            return _masked(v, x, op, read)
        case Settle():
            return _settled(v, x, op, read)
        case Keep():
            return _kept(v, x, read)
        case Recall():
            return _sliced(v, x, read, _row(read), ((TURN, read.layout.strides[0]),))
        case Conversion():
            return _converted(v, x, op, read)
        case _:
            return None


def _converted(v: ValueTable, x: Kernel, op: Conversion, read: Read) -> list[LoopNode] | None:
    b = v.buffers[x.result]
    match op.states:
        case Replicated(), Split(dim=dim):
            return _slice_of(v, x, read, dim)
        case Replicated(), Partial():
            make = NodeMaker(v, x)
            first = make.map("eq", (make.number(PositionNumber("coordinate", op.axis)),
                                     make.map("fill", (), I64)), BOOL)  # fmt: skip
            return make.end("select", (first, read, make.map("fill", (), b.dtype)))
        case Split(dim=dim), Replicated():
            return _stacked(v, x, read, dim)
        case Partial(op=how), _ if op.communicates:
            return _grown(v, x, read, how)
        case Partial(op=how), _ if len(b.shape) > len(read.layout.shape):
            tree = op.order is not Order.ADD_N
            return _grown(v, x, read, how, op.axis) if tree else _kept(v, x, read)
        case Partial(op=how), _ if isinstance(op, Accumulation):
            if not v.later_turn:
                return [v.map(x, "copy", (read,), v.wrote(x.result))]
            before = v.read(x.result)
            return [v.map(x, combine(how, b.dtype), (before, read), v.wrote(x.result))]
        case _:
            return None


# -- numbers --------------------------------------------------------------------------------------


def counted(v: ValueTable, x: Kernel, op: DimSize | OwnSize) -> list[LoopNode] | None:
    """How many entries a dim has."""
    if isinstance(op, OwnSize):
        r = v.buffers[x.operands[0]].ranges[op.dim]
    else:
        unit = op.extent.unit if op.extent else 1
        r = Range(op.size // unit if unit else 0, unit, op.extent.name if op.extent else "")
    make = NodeMaker(v, x)
    if is_whole(v, r, r.count * r.unit):
        return [v.map(x, "fill", (), v.wrote(x.result), number=r.count * r.unit)]
    return make.end("cast", (make.number(PositionNumber("length", range=r)),))


def indices(v: ValueTable, x: Kernel, op: Iota) -> list[LoopNode]:
    """The indices along a dim of the whole tensor, of which this is a shard."""
    r = v.buffers[x.result].ranges[op.dim]
    make = NodeMaker(v, x)
    if {o for o, _ in every_cut(r, v.mesh)} == {0}:
        return [v.map(x, "iota", (), v.wrote(x.result), number=op.dim)]
    index, first = (
        make.map("iota", (), I64, op.dim),
        make.number(PositionNumber("offset", range=r)),
    )
    return make.end("cast", (make.map("add", (index, first), I64),))


def _masked(v: ValueTable, x: Kernel, op: Mask, read: Read) -> list[LoopNode]:
    b, r = v.buffers[x.result], v.buffers[x.operands[0]].ranges[op.dim]
    if is_whole(v, r, b.shape[op.dim]):
        return [v.map(x, "copy", (read,), v.wrote(x.result))]
    make = NodeMaker(v, x)
    inside = make.below(op.dim, PositionNumber("length", range=r))
    return make.end("select", (inside, read, make.map("fill", (), b.dtype, op.fill)))


# -- slices ---------------------------------------------------------------------------------------


def _slice_of(v: ValueTable, x: Kernel, read: Read, dim: int) -> list[LoopNode] | None:
    """The part of a dim that this device, or this turn, has."""
    n = v.buffers[x.result].shape[dim]
    before, after = (v.buffers[b].ranges[dim] for b in (x.operands[0], x.result))
    shift = moved_by(after, before, read.layout.strides[dim])
    if is_whole(v, after, n):
        return _sliced(v, x, read, read.layout.sliced(dim, 0, n, 1), shift)
    seen = _moved(v, read, resized(read.layout, dim, n), shift)
    if seen is None:
        return None
    make = NodeMaker(v, x)
    inside = make.below(dim, PositionNumber("length", range=after))
    return make.end("copy", (make.guarded(seen, inside),))


def resized(layout: MemoryLayout, dim: int, n: int) -> MemoryLayout:
    """The layout with another length of a dim, perhaps a longer one."""
    shape = layout.shape
    return replace(layout, shape=(*shape[:dim], n, *shape[dim + 1 :]))


def _row(read: Read) -> MemoryLayout:
    """The layout of what lies behind the first dim."""
    layout = read.layout
    return MemoryLayout(layout.shape[1:], layout.strides[1:], layout.offset)


def _moved(v: ValueTable, read: Read, layout: MemoryLayout, shift: Shift) -> Read | None:
    """A section of what is read; None of what is no memory."""
    b = v.buffers[read.value.buffer]
    if b.kind == "positions" or b.id in v.facts.literals or b.id in v.facts.indices:
        return None
    return section(v, replace(read, layout=layout), shift=shift)


def _sliced(
    v: ValueTable, x: Kernel, read: Read, layout: MemoryLayout, shift: Shift
) -> list[LoopNode] | None:
    """A section: no copy is made, unless it is overwritten before it is read for the last time."""
    seen = _moved(v, read, layout, shift)
    if seen is None:
        return None
    if v.read_in_place(x.result, seen):
        return []
    return [v.map(x, "copy", (seen,), v.wrote(x.result))]


def _stacked(v: ValueTable, x: Kernel, read: Read, dim: int) -> list[LoopNode] | None:
    """A turn's slice, written to its place among those of all turns."""
    b, n = v.buffers[x.result], read.layout.shape[dim]
    own = v.buffers[x.operands[0]].ranges[dim]
    if b.kind == "view" or not (is_whole(v, own, n) and is_whole(v, b.ranges[dim], b.shape[dim])):
        return None
    whole = MemoryLayout.dense(b.shape)
    part = written(v, b.id, moved_by(own, b.ranges[dim], whole.strides[dim]))
    return [v.map(x, "copy", (read,), part, whole.sliced(dim, 0, n, 1))]


def _kept(v: ValueTable, x: Kernel, read: Read) -> list[LoopNode]:
    """A turn's value, written to its row."""
    row = MemoryLayout.dense(read.layout.shape)
    part = written(v, x.result, ((TURN, prod(row.shape)),))
    return [v.map(x, "copy", (read,), part, row)]


# -- sums over turns ------------------------------------------------------------------------------


def _grown(
    v: ValueTable, x: Kernel, read: Read, how: ReduceOp, axis: str = ""
) -> list[LoopNode]:  # fmt: skip
    """One more leaf of a forest. axis: of the turns, if each device begins with leaf 0."""
    row = MemoryLayout.dense(read.layout.shape)
    size, result = prod(row.shape), Read(Version(x.result), row, read.dtype)
    top, joined = (PositionNumber(kind, axis) for kind in ("pieces", "carries"))
    make, total = NodeMaker(v, x, row.shape), read
    for k in range(_most_carries(v, axis)):
        below = replace(row, offset=-(k + 1) * size)
        piece = section(v, replace(result, layout=below), shift=((top, size),))
        more = make.map("gt", (make.number(joined), make.map("fill", (), I64, k)), BOOL)
        both = make.map(combine(how, read.dtype), (make.guarded(piece, more), total), read.dtype)
        total = make.map("select", (more, both, total), read.dtype)
    return make.end("copy", (total,), written(v, x.result, ((top, size), (joined, -size))), row)


def _most_carries(v: ValueTable, axis: str) -> int:
    """How many pieces a turn joins at most, on any device."""
    turns, leaves = v.mesh.turns, v.mesh.leaves
    devices = prod(v.mesh.axis(a).size for a in leaves.axes[:-1]) if leaves and not axis else 1
    firsts = range(0, devices * turns, turns)
    return max(carries(first, first + t) for first in firsts for t in range(turns))


def _settled(v: ValueTable, x: Kernel, op: Settle, read: Read) -> list[LoopNode]:
    """The sum of what turns have kept: in their order, or of a forest from its end on."""
    every = op.order is Order.ADD_N
    rows = read.layout.shape[0] if every else len(pieces(0, op.turns))
    make, layout = NodeMaker(v, x), _row(read)
    dtype = F32 if read.dtype.bytes == 2 else read.dtype
    parts = []
    for k in range(rows):
        part = replace(
            read, layout=replace(layout, offset=layout.offset + k * read.layout.strides[0])
        )
        parts.append(make.map("cast", (part,), F32) if dtype != read.dtype else part)
    total = parts[0] if every else parts[-1]
    for part in parts[1:] if every else parts[-2::-1]:
        total = make.map(combine(op.op, dtype), (total, part) if every else (part, total), dtype)
    return make.end("copy" if dtype == read.dtype else "cast", (total,))


def placed(op: Op) -> bool:
    """Whether an op that depends on its position becomes nodes that read it."""
    return bool(op.conversion) or isinstance(op, Iota | OwnSize | Random)
