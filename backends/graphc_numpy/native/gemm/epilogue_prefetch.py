"""Prefetching what the epilogue of a tile will reach, while the tile is computed.

A processor has a short queue of lines of memory that it waits for: a tile that prefetches all of
them at once waits itself. So it prefetches those of a row at a time, between its multiplications.
Which they are stands in a table on the stack: the turn of the tile's loop that prefetches next, the
turns from one row to the next, and for each line of the next row its address, and the bytes to that
of the row after.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from graphc_llvm.prefetch import LINE
from graphc_llvm.vectors import I8, INT64, POINTER, Printer, index
from llvmlite import ir

from graphc.lowering.kernel.code import Access, reached
from graphc_numpy.native.gemm.tiles import Tiling

NEVER = (1 << 63) - 1  # the number of a turn that there is not
SOON = 32  # entries of inner: a tile of fewer is done before memory answers


def epilogue_lines(t: Tiling) -> int:
    """How many lines of memory the epilogue reaches in each row of a tile, but for what all rows
    share."""
    return sum(_lines(t, access) for access in _far(t))


def new_table(p: Printer, t: Tiling) -> ir.Value:
    """Room for the table of a product."""
    table = p.b.alloca(INT64, size=index(2 + 2 * epilogue_lines(t)))
    table.type = POINTER
    return table


def note_first_row(
    p: Printer, t: Tiling, table: ir.Value, pointers: Sequence[ir.Value],
    indices: Sequence[ir.Value],
) -> None:  # fmt: skip
    """Write the lines of the first row to the table, of a tile that begins at `indices`."""
    product, words = t.product, list[ir.Value]()
    last_row = len(product.batch) + len(product.rows) - 1
    for access in _far(t):
        dtype, where = product.params[access.slot].dtype, index(access.offset)
        for i, stride in zip(indices, access.strides, strict=True):
            where = p.b.add(where, p.b.mul(i, index(stride))) if stride else where
        first = p.b.ptrtoint(p.at(pointers[access.slot], where, dtype), INT64)
        step = index(access.strides[last_row] * dtype.bytes)
        for line in range(_lines(t, access)):
            words += [p.b.add(first, index(line * LINE)), step]
    for k, word in enumerate(words, 2):
        p.b.store(word, p.b.gep(table, [index(k)], source_etype=INT64), align=8)


def note_turns(p: Printer, table: ir.Value, last: ir.Value, turns: ir.Value, rows: int) -> None:
    """Write to the table how a tile shares its turns among rows.

    last: whether the epilogue follows
    """
    first = p.b.select(last, index(0), index(NEVER))
    each = p.larger(p.b.udiv(turns, index(rows)), index(1))
    p.b.store(first, table, align=8)
    p.b.store(each, p.b.gep(table, [index(1)], source_etype=INT64), align=8)


def prefetch_if_due(p: Printer, table: ir.Value, lines: ir.Value, turn: ir.Value) -> None:
    """Before a turn of a tile's loop: prefetch the lines of a row, if it is one that does."""
    b = p.b

    def prefetch(_: ir.Value, place: ir.Value) -> list[ir.Value]:
        address = b.load(place, typ=INT64, align=8)
        p.prefetch(b.inttoptr(address, POINTER))
        step = b.load(b.gep(place, [index(8)], source_etype=I8), typ=INT64, align=8)
        b.store(b.add(address, step), place, align=8)
        return [b.gep(place, [index(16)], source_etype=I8)]

    due = b.load(table, typ=INT64, align=8)
    with b.if_then(b.icmp_signed(">=", turn, due)):
        each = b.load(b.gep(table, [index(1)], source_etype=INT64), typ=INT64, align=8)
        b.store(b.add(due, each), table, align=8)
        p.loop(0, lines, 1, prefetch, [b.gep(table, [index(2)], source_etype=INT64)])


def _lines(t: Tiling, access: Access) -> int:
    return -(-t.width * t.product.params[access.slot].dtype.bytes // LINE)


def _far(t: Tiling) -> list[Access]:
    """What is not the same for all rows, and not reached soon."""
    product, far = t.product, dict[Access, None]()
    if not product.rows or not product.cols or prod(product.inner) < SOON:
        return []
    last_row = len(product.batch) + len(product.rows) - 1
    for x in product.code:
        for access in reached(x):
            near = access.strides[-1] == 1 and access.strides[last_row]
            if near and access.row is None:
                far[access] = None
    return list(far)
