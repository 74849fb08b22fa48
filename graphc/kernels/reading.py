"""From instructions to nodes: what each op is to a loop nest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from graphc.kernels.code import FoldKind
from graphc.kernels.nodes import Contract, Fold, Map, Node, Read, Value
from graphc.kernels.windows import Transposed, folded, transposed, window_read
from graphc.layout import MemoryLayout
from graphc.op import Op
from graphc.ops.collective import Accumulate
from graphc.ops.contract import Einsum, parse_spec
from graphc.ops.elementwise import Aggregate, Elementwise
from graphc.ops.indexing import Gather, ScatterAdd
from graphc.ops.reduce import ReduceMax, ReduceMin, ReduceSum, Reduction, highest, lowest
from graphc.ops.shape import Reverse
from graphc.ops.slicing import Concat, Pad
from graphc.ops.source import Iota
from graphc.ops.windows import FoldWindows, Windows
from graphc.program import Buffer, Instruction, Kernel, Write
from graphc.types import BOOL, DType

FEW = 4  # operands of a sum that are added at once
PARTS = 64  # of a fold, at most
WIDE, LONG = 128, 4096  # a fold to fewer entries, of as many each, is done in parts


@dataclass
class Reader:
    """Turns instructions into nodes, in the order in which they run.

    literals: scalar constants by buffer. whole: buffers that must be in memory as they are, since
    somebody else reads them. boxes: what is read, per dim, of buffers that are read by views only.
    later: what accumulates over turns is added to, not set
    """

    buffers: list[Buffer]
    literals: Mapping[int, float | int | bool]
    versions: dict[int, int] = field(default_factory=dict)
    extra: int = 0
    later: bool = False
    whole: frozenset[int] = frozenset()
    seen_as: dict[int, Read] = field(default_factory=dict)  # buffers that are views of others here
    made_by: dict[Value, Contract] = field(default_factory=dict)
    boxes: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)

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
        if b.root in self.seen_as:
            return self._through(b, self.seen_as[b.root])
        value = Value(b.root, self.versions.get(b.root, 0))
        layout = MemoryLayout.dense(b.shape)
        if b.kind == "view":
            layout = MemoryLayout(b.shape, b.strides, b.offset // b.dtype.bytes)
        return Read(value, layout, b.dtype)

    def _through(self, b: Buffer, seen: Read) -> Read:
        """A view of what is itself seen as a view: the dims that it has, moved or cut."""
        if b.kind != "view":
            return seen
        shape, dense = seen.layout.shape, MemoryLayout.dense(seen.layout.shape).strides
        along = {s: t for s, t, n in zip(dense, seen.layout.strides, shape, strict=True) if n > 1}
        strides = [along[s] if s and n > 1 else 0 for s, n in zip(b.strides, b.shape, strict=True)]
        first = zip(first_entry(b, shape), seen.layout.strides, strict=True)
        offset = seen.layout.offset + sum(i * s for i, s in first)
        return Read(seen.value, MemoryLayout(b.shape, tuple(strides), offset), b.dtype)

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
                return self._aggregate(x, order)
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
        made = self._narrowed(Contract(b.shape, op.spec, reads, result, b.dtype, x))
        self.made_by[made.result] = made
        return [made]

    def _narrowed(self, made: Contract) -> Contract:
        """The product of what is read of its result only, where that is a part of it."""
        b = made.result.buffer
        box = self.boxes.get(b)
        if box is None or all(hi - lo == n for (lo, hi), n in zip(box, made.shape, strict=True)):
            return made
        shape = tuple(hi - lo for lo, hi in box)
        left, right, out = parse_spec(made.spec)
        reads = []
        for read, names in zip(made.reads, (left, right), strict=True):
            layout = read.layout
            for x, (lo, hi) in zip(out, box, strict=True):
                if x in names:
                    layout = layout.sliced(names.index(x), lo, hi, 1)
            reads.append(replace(read, layout=layout))
        part = self.temporary(shape, made.dtype, b)
        result, along = self.wrote(part), MemoryLayout.dense(shape).strides
        offset = -sum(lo * s for (lo, _), s in zip(box, along, strict=True))
        self.seen_as[b] = Read(result, MemoryLayout(made.shape, along, offset), made.dtype)
        return replace(made, shape=shape, reads=tuple(reads), result=result)

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
        fold = Fold(shape, over, kind, (read,), self.wrote(x.result), dtype, x, first)
        return self._in_two(fold)

    def _in_two(self, fold: Fold) -> list[Node]:
        """A fold of many entries to few: first of equal parts, which can run side by side."""
        shape, d = fold.shape, fold.over[0]
        kept = prod(n for i, n in enumerate(shape) if i not in fold.over)
        parts = max((p for p in range(2, PARTS + 1) if shape[d] % p == 0), default=1)
        if kept >= WIDE or prod(shape) < kept * LONG or parts < 8:
            return [fold]
        read = fold.reads[0]
        strides = (
            *read.layout.strides[:d],
            *_cut(read.layout, d, parts),
            *read.layout.strides[d + 1 :],
        )
        cut = (*shape[:d], parts, shape[d] // parts, *shape[d + 1 :])
        over = tuple(x + (x >= d) for x in fold.over)
        left = tuple(n for i, n in enumerate(cut) if i not in over)
        part = self.temporary(left, fold.dtype, fold.result.buffer)
        seen = Read(read.value, MemoryLayout(cut, strides, read.layout.offset), read.dtype)
        first = replace(fold, shape=cut, over=over, reads=(seen,), result=self.wrote(part))
        at = sum(i not in over for i in range(d))
        second = replace(fold, shape=left, over=(at,), reads=(self.read(part),))
        return [first, second]

    def _aggregate(self, x: Kernel, order: str) -> list[Node]:
        """One sum, or one after the other where many would have to wait for the last."""
        reads = list(map(self.read, x.operands))
        dtype = self.buffers[x.result].dtype
        if order == "tree" or len(reads) <= FEW or dtype.bytes == 2:
            name = "tree" if order == "tree" else "sum"
            return [self._map(x, name, tuple(reads), self.wrote(x.result))]
        nodes: list[Node] = []
        total = reads[0]
        for read in reads[1:-1]:
            part = self.temporary(self.buffers[x.result].shape, dtype, x.result)
            nodes.append(self._map(x, "add", (total, read), self.wrote(part)))
            total = self.read(part)
        return [*nodes, self._map(x, "add", (total, reads[-1]), self.wrote(x.result))]

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
            case Iota(dim=dim):
                return [self._map(x, "iota", (), self.wrote(x.result), number=dim)]
            case Concat(dim=dim):
                return self._concat(x, dim, reads)
            case Pad(dim=dim, low=low, high=high, inner=inner):
                inside = whole.sliced(dim, low, shape[dim] - high, inner + 1)
                return self._over_zeros(x, [(reads[0], inside)], adds=False)
            case Reverse(dim=dim):
                return [self._map(x, "copy", (_reversed(reads[0], dim),), self.wrote(x.result))]
            case Windows():
                view = window_read(reads[0], op, shape)
                if x.result not in self.whole:
                    self.seen_as[x.result] = view
                    return []
                return [self._map(x, "copy", (view,), self.wrote(x.result))]
            case FoldWindows() if self.buffers[x.result].dtype != BOOL:
                return self._fold_windows(x, op, reads[0], whole)
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
        whole = MemoryLayout.dense(self.buffers[x.result].shape)
        nodes: list[Node] = [self._map(x, "fill", (), result, whole)]
        for read, target in parts:
            if 0 not in read.layout.shape:
                nodes.append(self._map(x, "copy", (read,), result, target, adds=adds))
        return nodes

    def _fold_windows(
        self, x: Kernel, op: FoldWindows, read: Read, whole: MemoryLayout
    ) -> list[Node] | None:
        rank = len(whole.shape)
        taps = read.layout.shape[rank:]
        spans = list(zip(op.at, taps, op.strides, op.dilations, strict=True))
        if all(k <= s and (r == 1 or k == 1) for _, k, s, r in spans):
            return self._apart(x, op, read, whole)
        contract = self.made_by.get(read.value)
        if contract is not None and all(s == 1 for s in op.strides):
            found = transposed(contract, read, op, whole.shape)
            if found is not None:
                return self._correlated(x, found)
        if self.buffers[x.result].dtype.bytes == 2:
            return None
        return self._over_zeros(x, folded(read, op, whole), adds=True)

    def _apart(self, x: Kernel, op: FoldWindows, read: Read, whole: MemoryLayout) -> list[Node]:
        """Windows that do not overlap: every entry has its own place."""
        strides, rank = list(whole.strides), len(whole.shape)
        taps = tuple(strides[d] * r for d, r in zip(op.at, op.dilations, strict=True))
        for d, s in zip(op.at, op.strides, strict=True):
            strides[d] *= s
        target = MemoryLayout(read.layout.shape, (*strides, *taps), 0)
        covered = prod(read.layout.shape) == prod(whole.shape)
        if not covered:
            return self._over_zeros(x, [(read, target)], adds=False)
        assert len(strides) == rank
        return [self._map(x, "copy", (read,), self.wrote(x.result), target)]

    def _correlated(self, x: Kernel, found: Transposed) -> list[Node]:
        """The fold of a product as a product with the windows of its padded operand."""
        g = found.contract.reads[found.side]
        b = self.temporary(found.padded, g.dtype, x.result)
        room = MemoryLayout.dense(found.padded)
        inside = room
        for d, low in found.low:
            inside = inside.sliced(d, low, low + g.layout.shape[d], 1)
        result = self.wrote(b)
        fill = Map(found.padded, "fill", (), result, g.dtype, x, room)
        copy = Map(g.layout.shape, "copy", (g,), result, g.dtype, x, inside)
        reads = list(found.contract.reads)
        reads[found.side] = Read(result, found.windows(room), g.dtype)
        shape = self.buffers[x.result].shape
        made = Contract(shape, found.spec, tuple(reads), self.wrote(x.result), g.dtype, x)
        return [fill, copy, self._narrowed(made)]

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
        whole = MemoryLayout.dense(self.buffers[x.result].shape)
        fill = self._map(x, "fill", (), result, whole)
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


def first_entry(view: Buffer, shape: Sequence[int]) -> list[int]:
    """The index, in a dense tensor of that shape, of the first entry of a view of it."""
    at, found = view.offset // view.dtype.bytes, []
    for stride in MemoryLayout.dense(tuple(shape)).strides:
        found.append(at // stride if stride else 0)
        at -= found[-1] * stride
    return found


def _cut(layout: MemoryLayout, d: int, parts: int) -> tuple[int, int]:
    """The strides of dim d, cut into equal parts."""
    stride = layout.strides[d]
    return stride * (layout.shape[d] // parts), stride


def _reversed(read: Read, dim: int) -> Read:
    layout = read.layout
    strides = tuple(-s if d == dim else s for d, s in enumerate(layout.strides))
    offset = layout.offset + (layout.shape[dim] - 1) * layout.strides[dim]
    return Read(read.value, MemoryLayout(layout.shape, strides, offset), read.dtype)
