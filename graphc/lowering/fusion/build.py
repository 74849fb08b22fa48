"""From a group of nodes to its kernel: axes are merged where all accesses allow it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from graphc.lowering.fusion.domains import Interval, axes, size
from graphc.lowering.fusion.emit import Writer
from graphc.lowering.kernel.code import (
    Access,
    AxisIndex,
    Gemm,
    IndexLinks,
    LoopKernel,
    Nest,
    Parameter,
    Phase,
    Pointer,
    Side,
    Statement,
    accesses,
    reached,
    with_accesses,
)
from graphc.lowering.nodes.nodes import ContractNode, LinkNode, MapNode, Read, ReduceNode
from graphc.lowering.program.strides import MemoryLayout
from graphc.ops.contract import grouped_letters, parse_spec

Lanes: TypeAlias = Literal["rows", "columns"]
FEW = 8  # columns that hardly fill a vector


@dataclass(frozen=True)
class Built:
    """A kernel, the buffers behind its parameters, and where in each (in bytes) it begins."""

    kernel: LoopKernel
    buffers: tuple[int, ...]
    offsets: tuple[int, ...]

    def pointers(self, pointer_of: Mapping[int, Pointer]) -> tuple[Pointer, ...]:
        """The arguments, where buffers lie there."""
        pairs = zip(self.buffers, self.offsets, strict=True)
        return tuple(
            Pointer(pointer_of[b].memory, pointer_of[b].offset + start) for b, start in pairs
        )


def build(writer: Writer, exact: bool = False) -> Built:
    """The kernel of a group. exact: the axes of a nest follow from the shape of its fold alone."""
    first = writer.nodes[writer.group.nodes[0]]
    if isinstance(first, LinkNode):
        return _links(writer, first)
    if writer.group.contract is not None:
        kernel: Nest | Gemm = _product(writer)
    else:
        kernel = _nest(writer, exact)
    kernel, starts = _from_the_start(kernel)
    offsets = (n * p.dtype.bytes for n, p in zip(starts, kernel.params, strict=True))
    return Built(kernel, tuple(writer.parameters.slots), tuple(offsets))


def _links(writer: Writer, node: LinkNode) -> Built:
    (ids,) = node.reads
    params = Parameter(ids.dtype), Parameter(node.dtype, written=True)
    kernel = IndexLinks(params, node.shape[0], node.limit, writer.number(node.instruction))
    buffers = ids.value.buffer, node.result.buffer
    return Built(kernel, buffers, (ids.layout.offset * ids.dtype.bytes, 0))


def _from_the_start(kernel: Nest | Gemm) -> tuple[Nest | Gemm, list[int]]:
    """The kernel with its pointers moved to the first element that it accesses.

    Kernels that differ only in where they begin become equal.
    """
    found: list[list[int]] = [[] for _ in kernel.params]
    sides: tuple[Side, ...] = ()
    if isinstance(kernel, Gemm):
        sides = kernel.left, kernel.right
        sizes = (*kernel.batch, *kernel.rows, *kernel.cols)
    else:
        sizes = (*kernel.rows, *kernel.columns)
    for access in accesses(kernel):
        found[access.slot].append(_lowest(access.offset, access.strides, sizes))
    for side in sides:
        strides = (*side.batch, *side.rows, *side.inner, *side.cols)
        every = (*kernel.batch, *kernel.rows, *kernel.inner, *kernel.cols)  # type: ignore[union-attr]
        found[side.slot].append(_lowest(side.offset, strides, every))
    starts = [min(x, default=0) for x in found]

    def moved(code: Sequence[Statement]) -> tuple[Statement, ...]:
        return tuple(_from_starts(x, starts) for x in code)

    if isinstance(kernel, Nest):
        phases = tuple(Phase(p.per_column, moved(p.code)) for p in kernel.phases)
        return replace(kernel, phases=phases), starts
    left, right = (replace(s, offset=s.offset - starts[s.slot]) for s in sides)
    return replace(kernel, left=left, right=right, code=moved(kernel.code)), starts


def _lowest(offset: int, strides: Sequence[int], sizes: Sequence[int]) -> int:
    pairs = zip(strides, sizes, strict=True)
    return offset + sum(min(0, s * (n - 1)) for s, n in pairs)


def _from_starts(x: Statement, starts: Sequence[int]) -> Statement:
    return with_accesses(x, lambda a: replace(a, offset=a.offset - starts[a.slot]))


# -- nests ---------------------------------------------------------------------------------------


def _nest(writer: Writer, exact: bool) -> Nest:
    phases = writer.phases()
    rows = tuple(map(size, writer.rows))
    columns = tuple(map(size, writer.columns))
    nodes = [writer.nodes[i] for i in writer.group.nodes]
    serial = any(isinstance(n, MapNode) and n.serial for n in nodes)
    nest = Nest(writer.parameters.params, rows, columns, phases, serial=serial)
    if exact and columns:
        return _fixed(nest, next(n for n in nodes if isinstance(n, ReduceNode)))
    nest = _merged(nest)
    return replace(nest, lanes=_lanes(nest))


def _fixed(nest: Nest, fold: ReduceNode) -> Nest:
    """The nest of a fold whose order must not depend on how many entries it makes.

    So which way the lanes go is told by which dims are folded, and dims of one entry count.
    """
    kept = [d for d in range(len(fold.shape)) if d not in fold.over]
    if not kept or kept[-1] < fold.over[-1]:
        return replace(nest, lanes="columns")
    return nest if nest.rows else _with_a_row(nest)


def _with_a_row(nest: Nest) -> Nest:
    """The nest with a row axis of one entry."""

    def seen(x: Statement) -> Statement:
        if isinstance(x, AxisIndex):
            return replace(x, axis=x.axis + 1)
        return with_accesses(x, lambda a: replace(a, strides=(0, *a.strides)))

    phases = tuple(Phase(p.per_column, tuple(map(seen, p.code))) for p in nest.phases)
    return replace(nest, rows=(1,), phases=phases)


def _merged(nest: Nest) -> Nest:
    """The nest with adjacent axes merged if every access continues from one to the next."""
    every, rows, columns = list(accesses(nest)), list(nest.rows), list(nest.columns)
    along = [list(a.strides) for a in every]
    counted, gone = _counted(nest), list[int]()
    n = len(rows)
    for k in reversed(range(len(rows) + len(columns) - 1)):
        if k + 1 == n:
            continue  # rows and columns stay apart
        sizes = [*rows, *columns]
        if {k, k + 1} & counted:
            continue
        if all(s[k] == s[k + 1] * sizes[k + 1] for s in along):
            for s in along:
                del s[k]
            gone.append(k)
            if k + 1 < n:
                rows[k : k + 2] = [rows[k] * rows[k + 1]]
                n -= 1
            else:
                c = k - n
                columns[c : c + 2] = [columns[c] * columns[c + 1]]
    moved = iter(along)
    phases = tuple(Phase(p.per_column, _restrided(p.code, moved, gone)) for p in nest.phases)
    return replace(nest, rows=tuple(rows), columns=tuple(columns), phases=phases)


def _counted(kernel: Nest | Gemm) -> set[int]:
    """The axes whose index is used."""
    codes = [kernel.code] if isinstance(kernel, Gemm) else [p.code for p in kernel.phases]
    return {x.axis for code in codes for x in code if isinstance(x, AxisIndex)}


def _restrided(
    code: Sequence[Statement], moved: Iterator[list[int]], gone: Sequence[int]
) -> tuple[Statement, ...]:
    """The code with new strides for its accesses, in their order, and axes counted anew."""
    found: list[Statement] = []
    for x in code:
        if isinstance(x, AxisIndex):
            x = replace(x, axis=x.axis - sum(k < x.axis for k in gone))
        found.append(with_accesses(x, lambda a: replace(a, strides=tuple(next(moved)))))
    return tuple(found)


def _lanes(nest: Nest) -> Lanes:
    """Along which axis neighbours are adjacent in memory."""
    if not nest.columns:
        return "rows"
    if not nest.rows or nest.rows[-1] < 2:
        return "columns"
    row, column = len(nest.rows) - 1, len(nest.rows) + len(nest.columns) - 1
    accesses = [a for p in nest.phases if p.per_column for x in p.code for a in reached(x)]
    by_row = sum(_suits(a, row) for a in accesses)
    by_column = sum(_suits(a, column) for a in accesses)
    if by_row == by_column:
        return "columns" if nest.columns[-1] >= FEW else "rows"
    return "rows" if by_row > by_column else "columns"


def _suits(access: Access, axis: int) -> int:
    """How well lanes along an axis read; what an indirect row does not go on along, it jumps."""
    stride = access.strides[axis]
    if access.row is not None and stride == 0:
        return -2
    return 0 if stride == 0 else 1 if stride == 1 else -2


# -- products ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _AxisLetters:
    """The axes of a product's domain (the result's entries), by what their letter is."""

    batch: tuple[Interval, ...]
    rows: tuple[Interval, ...]
    cols: tuple[Interval, ...]
    dims: dict[Interval, tuple[str, int]]  # axis -> its letter, and the axis's step in it


def _product(writer: Writer) -> Gemm:
    i = writer.group.contract
    assert i is not None
    node = writer.nodes[i]
    assert isinstance(node, ContractNode)
    left, right = node.reads
    first, second, out = parse_spec(node.spec)
    batch, inner, rows, cols = grouped_letters(node.spec)
    if out and out[-1] in rows:  # the product of the transposes has the result's order
        left, right, first, second, rows, cols = right, left, second, first, cols, rows
    letters = _letters(writer, out, (batch, rows, cols), node.shape)
    order = [*letters.batch, *letters.rows, *letters.cols]
    writer.rows, writer.columns = order, []
    sum_register = writer.registers.new()
    slots = [writer.parameters.slot(r.value.buffer, r.dtype) for r in (left, right)]
    code = tuple(writer.entry_code({i: sum_register}))
    lengths = dict(zip(first, left.layout.shape, strict=True))
    sides = [
        _side(slot, read, names, letters, inner)
        for slot, read, names in zip(slots, (left, right), (first, second), strict=True)
    ]
    product = Gemm(
        writer.parameters.params, sides[0], sides[1], _sizes(letters.batch), _sizes(letters.rows),
        tuple(lengths[x] for x in inner), _sizes(letters.cols), node.dtype, code,
    )  # fmt: skip
    return _merged_product(product)


def _sizes(found: Sequence[Interval]) -> tuple[int, ...]:
    return tuple(map(size, found))


def _letters(
    writer: Writer, out: str, groups: tuple[list[str], list[str], list[str]], shape: tuple[int, ...]
) -> _AxisLetters:
    dims: dict[Interval, tuple[str, int]] = {}
    whole = MemoryLayout.dense(shape)
    for axis in axes(writer.group.cuts):
        for x, n, step in zip(out, shape, whole.strides, strict=True):
            if n > 1 and step <= axis[0] and axis[1] <= step * n:
                dims[axis] = (x, axis[0] // step)
    parts = [
        tuple(sorted((a for a, (x, _) in dims.items() if x in names), key=lambda a: -a[0]))
        for names in groups
    ]
    return _AxisLetters(parts[0], parts[1], parts[2], dims)


def _side(slot: int, read: Read, names: str, letters: _AxisLetters, inner: list[str]) -> Side:
    along = dict(zip(names, read.layout.strides, strict=True))

    def of(found: tuple[Interval, ...]) -> tuple[int, ...]:
        return tuple(along.get(x, 0) * step for x, step in (letters.dims[axis] for axis in found))

    summed = tuple(along[x] for x in inner)
    batch, rows, cols = of(letters.batch), of(letters.rows), of(letters.cols)
    return Side(slot, batch, rows, summed, cols, read.layout.offset)


def _merged_product(p: Gemm) -> Gemm:
    """The product with adjacent axes of a group merged where that is possible."""
    every = [list(a.strides) for a in accesses(p)]
    start, first, gone, counted = 0, 0, list[int](), _counted(p)
    for name in ("batch", "rows", "cols"):
        sizes = list(getattr(p, name))
        sides = [list(getattr(s, name)) for s in (p.left, p.right)]
        for k in reversed(range(len(sizes) - 1)):
            if {first + k, first + k + 1} & counted:
                continue
            inside = [(s, k) for s in sides] + [(s, start + k) for s in every]
            if all(s[j] == s[j + 1] * sizes[k + 1] for s, j in inside):
                for s, j in inside:
                    del s[j]
                sizes[k : k + 2] = [sizes[k] * sizes[k + 1]]
                gone.append(first + k)
        start, first = start + len(sizes), first + len(getattr(p, name))
        left, right = ({name: tuple(side)} for side in sides)
        merged: dict[str, Any] = {name: tuple(sizes)}
        p = replace(p, left=_with(p.left, left), right=_with(p.right, right), **merged)
    p = _merged_inner(p)
    return replace(p, code=_restrided(p.code, iter(every), gone))


def _with(side: Side, changes: dict[str, Any]) -> Side:
    return replace(side, **changes)


def _merged_inner(p: Gemm) -> Gemm:
    sizes, left, right = list(p.inner), list(p.left.inner), list(p.right.inner)
    kept = [k for k, n in enumerate(sizes) if n != 1]
    sizes, left, right = ([xs[k] for k in kept] for xs in (sizes, left, right))
    for k in reversed(range(len(sizes) - 1)):
        if all(s[k] == s[k + 1] * sizes[k + 1] for s in (left, right)):
            for s in (left, right):
                del s[k]
            sizes[k : k + 2] = [sizes[k] * sizes[k + 1]]
    return replace(
        p,
        inner=tuple(sizes),
        left=replace(p.left, inner=tuple(left)),
        right=replace(p.right, inner=tuple(right)),
    )


__all__ = ["Built", "build"]
