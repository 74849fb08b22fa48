"""Code that reaches rows at an index, and chains of places that links tell."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING

from graphc.kernels.code import Access, Chain, Check, Load, Store
from graphc.kernels.domains import size
from graphc.kernels.nodes import Map
from graphc.types import BOOL, I32

if TYPE_CHECKING:
    from graphc.kernels.emit import Cells


def load(cells: Cells, node: Map) -> int:
    """The register of an entry of a row at an index, or of the sum over a chain of places."""
    return _gather(cells, node) if node.function == "gather" else _chain(cells, node)


def store(cells: Cells, node: Map, access: Access, register: int) -> None:
    """Add to a row at an index: everywhere, or only where chains of equal indices begin."""
    w, where = cells.w, None
    row = _checked(cells, node) if node.function == "scatter" else _clamped(cells, node)
    if node.function == "first_rows":
        zero = w.constant(0, I32, cells.code)
        where = w.operation("ge", (cells.read(node.reads[2]), zero), BOOL, cells.code)
    access = Access(access.slot, access.strides, access.offset, row, node.step)
    cells.code.append(Store(access, register, add=True, where=where))


def _gather(cells: Cells, node: Map) -> int:
    table, w = node.reads[0], cells.w
    row = _checked(cells, node)
    slot = w.parameters.slot(table.value.buffer, table.dtype)
    target = w.registers.new()
    access = Access(slot, w.cell_strides(table), table.layout.offset, row, node.step)
    cells.code.append(Load(target, access))
    return target


def _checked(cells: Cells, node: Map) -> int:
    """The register of an index that was checked, in the row's code where that suffices."""
    w, ids = cells.w, node.reads[1]
    source, target = cells.read(ids), w.registers.new()
    of_row = w.group.made.get(ids.value) is None and cells.once_a_row(w.cell_strides(ids))
    code = w.row_code if of_row else cells.code
    code.append(Check(target, source, node.limit, w.number(node.instruction)))
    return target


def _clamped(cells: Cells, node: Map) -> int:
    """The register of an index that the links have checked; one that is wrong is clamped."""
    w, ids = cells.w, node.reads[1]
    found = cells.read(ids)
    for name, bound in (("maximum", 0), ("minimum", node.limit - 1)):
        limit = w.constant(bound, ids.dtype, cells.code)
        found = w.operation(name, (found, limit), ids.dtype, cells.code)
    return found


def _chain(cells: Cells, node: Map) -> int:
    w, (rows, links) = cells.w, node.reads
    slot = w.parameters.slot(rows.value.buffer, rows.dtype)
    along, count = w.cell_strides(rows), node.limit
    step = prod(node.shape) // count  # cells of a place
    pairs = list(zip(w.ordered, along, strict=True))
    inside = tuple(0 if axis[0] >= step else stride for axis, stride in pairs)
    places = [(a[0] // step, size(a), stride) for a, stride in pairs if a[0] >= step]
    link, target = cells.read(links), w.registers.new()
    every = w.parameters.slot(links.value.buffer, links.dtype)
    here, there = (Access(slot, x, rows.layout.offset) for x in (along, inside))
    tree = node.function == "chain:tree"
    cells.code.append(Chain(target, here, there, _joined(places), link, every, count, tree))
    return target


def _joined(places: Iterable[tuple[int, int, int]]) -> tuple[tuple[int, int, int], ...]:
    """(low, size, stride) of the axes of places; neighbours that go on are one."""
    found: list[tuple[int, int, int]] = []
    for low, n, stride in sorted(places):
        if found and found[-1][2] * found[-1][1] == stride:
            low, size_before, stride = found.pop()
            n *= size_before
        found.append((low, n, stride))
    return tuple(found)
