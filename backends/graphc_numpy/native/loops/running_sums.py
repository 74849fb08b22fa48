"""Running sums along a dim: one addition after the other, of many lines side by side.

An addition waits for the one before it, so several lines take turns: in vectors where the entries
of neighboring lines lie together, else one by one.
"""

from __future__ import annotations

from llvmlite import ir

from graphc.ir.types import BOOL
from graphc.lowering.kernel.lines import LineKernel
from graphc_numpy.native.llvm.vectors import WIDTH, Printer, Vector, register_type, vector
from graphc_numpy.native.loops.line_blocks import LineBlock, LineGrid, print_blocks

VECTORS, LINES = 4, 8  # that take turns


def _each(kernel: LineKernel) -> int:
    return VECTORS * WIDTH if LineGrid.of(kernel).together else LINES


def units(kernel: LineKernel) -> int:
    """Blocks of lines."""
    return LineGrid.of(kernel).units(_each(kernel))


def scratch_bytes(kernel: LineKernel) -> int:
    """Totals are in registers."""
    return 0


def print_units(
    p: Printer, kernel: LineKernel, pointers: tuple[ir.Value, ir.Value],
    units: tuple[ir.Value, ir.Value], scratch: ir.Value,
) -> None:  # fmt: skip
    """The units between two numbers."""
    print_blocks(p, kernel, _each(kernel), pointers, units, lambda block: _lines(p, block))


def _lines(p: Printer, block: LineBlock) -> None:
    """Some lines, entry by entry."""
    dtype, width = block.kernel.params[0].dtype, WIDTH if block.grid.together else 1
    firsts = range(0, block.count, width)
    zero = -0.0 if dtype.kind == "f" else 0  # 0.0 would change -0.0
    nothing = p.number(zero, vector(register_type(dtype), width))

    def entry(k: ir.Value, *totals: ir.Value) -> list[ir.Value]:
        more = list[ir.Value]()
        for first, total in zip(firsts, totals, strict=True):
            x = block.load(k, first, width).value
            if dtype == BOOL:
                more.append(p.b.or_(total, x))
            else:
                more.append(p.b.fadd(total, x) if dtype.kind == "f" else p.b.add(total, x))
            block.store(p.rounded(Vector(more[-1], dtype, width)), k, first)
        return more

    p.loop(0, block.kernel.length, 1, entry, [nothing] * len(firsts))
