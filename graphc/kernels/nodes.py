"""Nodes: the instructions of a program as what a loop nest can do, over values.

A *value* is what one write leaves in a buffer; a buffer that is written again, as a variable is,
holds another value. A node reads each operand through a layout: which element of the value belongs
to which entry of the node's domain. So views cost nothing, and need no node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple, TypeAlias

from graphc.kernels.code import FoldKind
from graphc.layout import MemoryLayout
from graphc.op import Op
from graphc.ops.collective import Accumulate
from graphc.ops.contract import Einsum, parse_spec
from graphc.ops.elementwise import Aggregate, Elementwise
from graphc.ops.indexing import Gather, ScatterAdd
from graphc.ops.reduce import ReduceMax, ReduceMin, ReduceSum, Reduction, highest, lowest
from graphc.ops.shape import Reverse
from graphc.ops.slicing import Concat, Pad
from graphc.ops.windows import FoldWindows, Windows
from graphc.program import Buffer, Instruction, Kernel, Write
from graphc.types import F32, DType


class Value(NamedTuple):
    """What write number `version` leaves in a buffer that is no view; 0 is what it began with."""

    buffer: int
    version: int = 0


@dataclass(frozen=True, slots=True)
class Read:
    """A value, as a node sees it: layout.shape is the domain, its elements are the value's."""

    value: Value
    layout: MemoryLayout
    dtype: DType


@dataclass(frozen=True, slots=True)
class Map:
    """`result[entry] = function(reads[entry])` for every entry of a domain.

    function: an elementwise op; 'copy'; 'sum' and 'tree' (of many, in their order); 'fill' with
              `number`; 'gather' (a table's row, at an index); 'scatter' (added to a row)
    target:   where in the result the entries go, if that is not all of it in row-major order
    limit:    of an index; step: elements from row to row
    adds:     to what the result holds already
    """

    shape: tuple[int, ...]
    function: str
    reads: tuple[Read, ...]
    result: Value
    dtype: DType
    instruction: Instruction
    target: MemoryLayout | None = None
    number: float | int | bool = 0
    limit: int = 0
    step: int = 0
    adds: bool = False


@dataclass(frozen=True, slots=True)
class Fold:
    """`result` = the sum (largest, smallest) of what is read, over some dims of the domain."""

    shape: tuple[int, ...]
    over: tuple[int, ...]
    kind: FoldKind
    reads: tuple[Read, ...]
    result: Value
    dtype: DType
    instruction: Instruction
    first: float | int | bool = 0
    target: None = None


@dataclass(frozen=True, slots=True)
class Contract:
    """`result = einsum(spec, left, right)`; shape is that of the result."""

    shape: tuple[int, ...]
    spec: str
    reads: tuple[Read, ...]
    result: Value
    dtype: DType
    instruction: Instruction
    target: None = None


Node: TypeAlias = Map | Fold | Contract


@dataclass
class Reader:
    """Turns instructions into nodes, in the order in which they run.

    literals: scalar constants by buffer. kept: buffers that hold a value from turn to turn; they
    are set in the first turn of a loop, and added to in the later ones.
    """

    buffers: list[Buffer]
    literals: Mapping[int, float | int | bool]
    versions: dict[int, int] = field(default_factory=dict)
    extra: int = 0
    later: bool = False

    def nodes(self, x: Instruction) -> list[Node] | None:
        """The nodes that do what an instruction does; None where none can."""
        match x:
            case Write(operand=operand, variable=variable):
                read = self.read(operand)
                return [self._map(x, "copy", (read,), self.wrote(variable))]
            case Kernel(op=op, result=result):
                if self.buffers[result].kind == "view":
                    return []
                if 0 in self.buffers[result].shape:
                    self.wrote(result)
                    return []
                return self._kernel(x, op)
            case _:
                return None

    # -- values ---------------------------------------------------------------------------------

    def read(self, buffer: int) -> Read:
        """The present value of a buffer, through the layout of the view that it is."""
        b = self.buffers[buffer]
        value = Value(b.root, self.versions.get(b.root, 0))
        layout = MemoryLayout.dense(b.shape)
        if b.kind == "view":
            layout = MemoryLayout(b.shape, b.strides, b.offset // b.dtype.bytes)
        return Read(value, layout, b.dtype)

    def wrote(self, buffer: int) -> Value:
        """The value after one more write."""
        self.versions[buffer] = self.versions.get(buffer, 0) + 1
        return Value(buffer, self.versions[buffer])

    def temporary(self, shape: tuple[int, ...], dtype: DType, like: int) -> int:
        """A new buffer of the arena."""
        name = f"{self.buffers[like].name}.part"
        self.buffers.append(Buffer(len(self.buffers), name, shape, dtype))
        return len(self.buffers) - 1

    def _map(
        self, x: Instruction, function: str, reads: tuple[Read, ...], result: Value,
        target: MemoryLayout | None = None, **more: float,
    ) -> Map:  # fmt: skip
        b = self.buffers[result.buffer]
        shape = target.shape if target else b.shape
        return Map(shape, function, reads, result, b.dtype, x, target, **more)  # type: ignore[arg-type]

    # -- kernels --------------------------------------------------------------------------------

    def _kernel(self, x: Kernel, op: Op) -> list[Node] | None:
        b = self.buffers[x.result]
        match op:
            case Einsum() | ReduceSum() if op.blocks:
                return None
            case Einsum():
                return self._contract(x, op)
            case Reduction():
                return self._fold(x, op)
            case Accumulate(op="sum") if b.shape == self.buffers[x.operands[0]].shape:
                return self._accumulate(x)
            case Aggregate(order=order):
                reads = tuple(map(self.read, x.operands))
                return [self._map(x, "tree" if order == "tree" else "sum", reads, self.wrote(b.id))]
            case _ if op.conversion:
                return None
            case Elementwise():
                reads = tuple(map(self.read, x.operands))
                name = "copy" if op.view else op.name
                return [self._map(x, name, reads, self.wrote(b.id))]
            case _:
                return self._moves(x, op)

    def _contract(self, x: Kernel, op: Einsum) -> list[Node]:
        reads = tuple(map(self.read, x.operands))
        result = self.wrote(x.result)
        if any(0 in r.layout.shape for r in reads):
            return [self._map(x, "fill", (), result)]
        b = self.buffers[x.result]
        parse_spec(op.spec)
        return [Contract(b.shape, op.spec, reads, result, b.dtype, x)]

    def _fold(self, x: Kernel, op: Reduction) -> list[Node]:
        read, dtype = self.read(x.operands[0]), self.buffers[x.result].dtype
        kinds: dict[str, FoldKind] = {"sum": "sum", "max": "max", "min": "min"}
        kind = kinds[op.reduces]
        first: float | int | bool = 0
        if isinstance(op, ReduceMax | ReduceMin):
            first = (lowest if isinstance(op, ReduceMax) else highest)(dtype.numpy)
        shape = read.layout.shape
        if 0 in shape:
            return [self._map(x, "fill", (), self.wrote(x.result), number=first)]
        over = tuple(sorted(d for d in op.over if shape[d] > 1))
        if not over:
            kept = [d for d in range(len(shape)) if d not in op.over]
            flat = MemoryLayout(
                tuple(shape[d] for d in kept), tuple(read.layout.strides[d] for d in kept),
                read.layout.offset,
            )  # fmt: skip
            return [self._map(x, "copy", (Read(read.value, flat, dtype),), self.wrote(x.result))]
        return [Fold(shape, over, kind, (read,), self.wrote(x.result), dtype, x, first)]

    def _accumulate(self, x: Kernel) -> list[Node]:
        read, before = self.read(x.operands[0]), self.read(x.result)
        if not self.later:
            return [self._map(x, "copy", (read,), self.wrote(x.result))]
        return [self._map(x, "add", (before, read), self.wrote(x.result))]

    # -- ops that move entries --------------------------------------------------------------------

    def _moves(self, x: Kernel, op: Op) -> list[Node] | None:
        reads = [self.read(b) for b in x.operands]
        shape = self.buffers[x.result].shape
        whole = MemoryLayout.dense(shape)
        match op:
            case Gather() if 0 not in reads[0].layout.shape:
                return self._gather(x, op, reads)
            case ScatterAdd() if self.buffers[x.result].dtype.bytes > 2:
                return self._scatter(x, op, reads)
            case Concat(dim=dim):
                return self._concat(x, dim, reads)
            case Pad(dim=dim, low=low, high=high, inner=inner):
                inside = whole.sliced(dim, low, shape[dim] - high, inner + 1)
                return self._over_zeros(x, [(reads[0], inside)], adds=False)
            case Reverse(dim=dim):
                return [self._map(x, "copy", (_reversed(reads[0], dim),), self.wrote(x.result))]
            case Windows():
                view = _windows(reads[0], op, shape)
                return [self._map(x, "copy", (view,), self.wrote(x.result))]
            case FoldWindows() if self.buffers[x.result].dtype.bytes > 2:
                return self._over_zeros(x, _folded(reads[0], op, whole), adds=True)
            case Op(view=True):
                return self._copied(x, op, reads[0])
            case _:
                return None

    def _copied(self, x: Kernel, op: Op, read: Read) -> list[Node] | None:
        """A view that was made anew."""
        layout = op.layout(read.layout)
        if layout is not None:
            seen = Read(read.value, layout, read.dtype)
            return [self._map(x, "copy", (seen,), self.wrote(x.result))]
        result = self.wrote(x.result)  # a reshape: the result takes the operand's shape
        target = MemoryLayout.dense(read.layout.shape)
        return [self._map(x, "copy", (read,), result, target)]

    def _concat(self, x: Kernel, dim: int, reads: Sequence[Read]) -> list[Node]:
        whole, at = MemoryLayout.dense(self.buffers[x.result].shape), 0
        result, nodes = self.wrote(x.result), list[Node]()
        for read in reads:
            n = read.layout.shape[dim]
            if 0 not in read.layout.shape:
                target = whole.sliced(dim, at, at + n, 1)
                nodes.append(self._map(x, "copy", (read,), result, target))
            at += n
        return nodes

    def _over_zeros(
        self, x: Kernel, parts: Sequence[tuple[Read, MemoryLayout]], adds: bool
    ) -> list[Node]:
        """Zeros, and over them (or added to them) the parts."""
        result = self.wrote(x.result)
        nodes: list[Node] = [self._map(x, "fill", (), result)]
        for read, target in parts:
            if 0 not in read.layout.shape:
                nodes.append(self._map(x, "copy", (read,), result, target, adds=adds))
        return nodes

    def _gather(self, x: Kernel, op: Gather, reads: Sequence[Read]) -> list[Node]:
        table, ids = reads
        shape, dim, rank = self.buffers[x.result].shape, op.dim, len(ids.layout.shape)
        limit, step = table.layout.shape[dim], table.layout.strides[dim]
        strides = table.layout.strides
        rows = (*strides[:dim], *(0,) * rank, *strides[dim + 1 :])
        rest = len(shape) - dim - rank
        where = MemoryLayout(
            shape, (0,) * dim + ids.layout.strides + (0,) * rest, ids.layout.offset
        )
        seen = Read(table.value, MemoryLayout(shape, rows, table.layout.offset), table.dtype)
        at = Read(ids.value, where, ids.dtype)
        result = self.wrote(x.result)
        return [self._map(x, "gather", (seen, at), result, limit=limit, step=step)]

    def _scatter(self, x: Kernel, op: ScatterAdd, reads: Sequence[Read]) -> list[Node]:
        ids, updates = reads
        result = self.wrote(x.result)
        fill = self._map(x, "fill", (), result)
        shape, dim, rank = updates.layout.shape, op.dim, len(ids.layout.shape)
        if 0 in shape:
            return [fill]
        whole = MemoryLayout.dense(self.buffers[x.result].shape)
        rest = len(shape) - dim - rank
        rows = (*whole.strides[:dim], *(0,) * rank, *whole.strides[dim + 1 :])
        where = MemoryLayout(
            shape, (0,) * dim + ids.layout.strides + (0,) * rest, ids.layout.offset
        )
        at = Read(ids.value, where, ids.dtype)
        target = MemoryLayout(shape, rows, 0)
        step = whole.strides[dim]
        added = self._map(
            x, "scatter", (updates, at), result, target, limit=op.size, step=step, adds=True
        )
        return [fill, added]


def _reversed(read: Read, dim: int) -> Read:
    layout = read.layout
    strides = tuple(-s if d == dim else s for d, s in enumerate(layout.strides))
    offset = layout.offset + (layout.shape[dim] - 1) * layout.strides[dim]
    return Read(read.value, MemoryLayout(layout.shape, strides, offset), read.dtype)


def _windows(read: Read, op: Windows, shape: tuple[int, ...]) -> Read:
    """The windows of a tensor, as a view of it whose entries overlap."""
    strides = list(read.layout.strides)
    taps = [strides[d] * r for d, r in zip(op.at, op.dilations, strict=True)]
    for d, s in zip(op.at, op.strides, strict=True):
        strides[d] *= s
    return Read(read.value, MemoryLayout(shape, (*strides, *taps), read.layout.offset), read.dtype)


def _folded(read: Read, op: FoldWindows, whole: MemoryLayout) -> list[tuple[Read, MemoryLayout]]:
    """For each tap of the windows: its entries, and where they are added."""
    rank = len(read.layout.shape) - len(op.at)
    sizes, steps = read.layout.shape[rank:], read.layout.strides[rank:]
    parts = []
    for number in range(prod(sizes)):
        tap: list[int] = []
        for n in reversed(sizes):
            number, k = divmod(number, n)
            tap.insert(0, k)
        source = MemoryLayout(
            read.layout.shape[:rank], read.layout.strides[:rank],
            read.layout.offset + sum(k * s for k, s in zip(tap, steps, strict=True)),
        )  # fmt: skip
        target = whole
        for d, k, s, r in zip(op.at, tap, op.strides, op.dilations, strict=True):
            count = read.layout.shape[d]
            target = target.sliced(d, k * r, k * r + (count - 1) * s + 1, s)
        parts.append((Read(read.value, source, read.dtype), target))
    return parts


__all__ = ["F32", "Contract", "Fold", "Map", "Node", "Read", "Reader", "Value"]
