"""What is done with a tile of sums: the code of a product, on each of its entries.

What the code will reach is asked for before the tile is computed, and comes meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from graphc_llvm.expression_codegen import ExpressionPrinter
from graphc_llvm.folding import FoldingBuilder
from graphc_llvm.helpers import helper
from graphc_llvm.prefetch import LINE
from graphc_llvm.vectors import (
    FEW,
    I8,
    INT64,
    POINTER,
    VOID,
    WIDTH,
    Printer,
    Vector,
    index,
)
from llvmlite import ir

from graphc.lowering.kernel.axes import sizes
from graphc.lowering.kernel.code import Access, reached
from graphc_numpy.native.gemm.tiles import Tiling
from graphc_numpy.native.machine import host_printer

SOON = 32  # entries of inner: a tile of fewer is done before memory answers


def print_epilogue(module: ir.Module, t: Tiling, name: str) -> ir.Function:
    """`void f(ptr params..., ptr sums, i64 indices..., i64 rows, i64 cols, ptr errors)`."""
    product = t.product
    n, axes = len(product.params), len(sizes(product))
    arguments = [POINTER] * (n + 1) + [INT64] * (axes + 2) + [POINTER]
    f = helper(module, ir.FunctionType(VOID, arguments), name)
    few = prod((*product.batch, *product.rows, *product.cols)) <= FEW
    p = host_printer(FoldingBuilder(f.append_basic_block("entry")), few)
    pointers, sums, errors = f.args[:n], f.args[n], f.args[-1]
    indices, rows, cols = f.args[n + 1 : n + 1 + axes], f.args[-3], f.args[-2]
    if t.units == t.wide == 1:
        indices = [index(0)] * axes
    if t.high == 1 or t.height == t.last_height:
        rows = index(t.last_height)
    if t.wide == 1 or t.width == t.last_width:
        cols = index(t.last_width)
    last_row = len(product.batch) + len(product.rows) - 1
    outer = range(axes - 1 if product.cols else axes)

    def strip(
        expressions: ExpressionPrinter,
        position: list[ir.Value],
        sums: ir.Value,
        col: ir.Value,
        n: int,
    ) -> None:
        here = [*position[:-1], p.b.add(position[-1], col)] if product.cols else position
        registers = {0: _sum(p, t, p.at(sums, col, t.dtype))}
        expressions.run(product.code, registers, here, axes - 1 if product.cols else None, n)

    def turn(row: ir.Value) -> None:
        here = list(indices)
        if product.rows:
            here[last_row] = p.b.add(indices[last_row], row)
        expressions = ExpressionPrinter(p, product.params, pointers, errors).with_indices(
            product.code, here, outer
        )
        line = p.at(sums, p.b.mul(row, index(t.width)), t.dtype)
        whole = p.b.and_(cols, index(-WIDTH))
        if t.cols >= WIDTH:
            p.loop(0, whole, WIDTH, lambda col: strip(expressions, here, line, col, WIDTH))
        if t.cols % WIDTH:
            rest = p.b.icmp_signed("<", whole, cols)
            p.when(rest, lambda: strip(expressions, here, line, whole, t.cols % WIDTH))

    p.loop(0, rows, 1, turn)
    p.b.ret_void()
    return f


def _sum(p: Printer, t: Tiling, address: ir.Value) -> Vector:
    """Register 0: rounded where products are added up in another dtype."""
    dtype = t.product.dtype
    loaded = p.load_lanes(address, t.dtype) if t.product.cols else p.load(address, t.dtype)
    return p.rounded(Vector(loaded.value, dtype, loaded.width))


Line = tuple[ir.Value, ir.Value]  # where it lies, and the bytes to that of the next row


def lines_ahead(t: Tiling) -> int:
    """How many lines of memory the code reaches in each row of a tile, but for what all rows
    share."""
    return sum(_lines(t, access) for access in _far(t))


def ahead(
    p: Printer, t: Tiling, pointers: Sequence[ir.Value], indices: Sequence[ir.Value]
) -> list[Line]:
    """These lines, of the first row of a tile that begins at `indices`."""
    product, found = t.product, list[Line]()
    last_row = len(product.batch) + len(product.rows) - 1
    for access in _far(t):
        dtype, where = product.params[access.slot].dtype, index(access.offset)
        for i, stride in zip(indices, access.strides, strict=True):
            where = p.b.add(where, p.b.mul(i, index(stride))) if stride else where
        first, step = p.at(pointers[access.slot], where, dtype), access.strides[last_row]
        for line in range(_lines(t, access)):
            here = p.b.gep(first, [index(line * LINE)], source_etype=I8)
            found.append((here, index(step * dtype.bytes)))
    return found


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
