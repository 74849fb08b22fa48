"""Running sums along a dim: one addition after the other, of many lines side by side.

An addition waits for the one before it, so several lines take turns: in vectors where the entries
of neighboring lines lie together, else one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from llvmlite import ir

from graphc.ir.types import BOOL
from graphc.lowering.kernel.lines import LineKernel
from graphc_numpy.native.llvm.vectors import (
    WIDTH,
    Printer,
    Vector,
    index,
    register_type,
    vector,
)

VECTORS, LINES = 4, 8  # that take turns


@dataclass(frozen=True)
class _Grid:
    """Blocks of lines along one axis, for each index of the others.

    Each axis has (size, step in the source, step in the result); `width` lines are a vector
    """

    outer: tuple[tuple[int, int, int], ...]
    across: tuple[int, int, int]
    width: int

    @property
    def each(self) -> int:
        """Lines of a block."""
        return VECTORS * WIDTH if self.width > 1 else LINES

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of the outer axes, and how many blocks there are."""
        return (*(n for n, _, _ in self.outer), -(-self.across[0] // self.each))


def _grid(kernel: LineKernel) -> _Grid:
    axes = list(zip(kernel.rows, kernel.source, kernel.result, strict=False)) or [(1, 0, 0)]
    together = [k for k, (_, x, y) in enumerate(axes) if x in (0, 1) and y == 1]
    across = axes.pop(together[-1] if together else -1)
    return _Grid(tuple(axes), across, WIDTH if together else 1)


def units(kernel: LineKernel) -> int:
    """Blocks of lines."""
    return prod(_grid(kernel).sizes)


class RunningSums:
    """Prints the loops over blocks of lines, and along these."""

    units = staticmethod(units)

    def __init__(self, p: Printer, kernel: LineKernel, source: ir.Value, result: ir.Value) -> None:
        self.p, self.kernel, self.grid = p, kernel, _grid(kernel)
        self.pointers = source, result
        self.dtype = kernel.params[0].dtype

    def run(self, begin: ir.Value, end: ir.Value) -> None:
        """The blocks from `begin` to `end`."""
        self.p.loop(begin, end, 1, self._block)

    def _block(self, unit: ir.Value) -> None:
        b, grid = self.p.b, self.grid
        *indices, block = self.p.positions(unit, grid.sizes)
        first, (size, *steps) = b.mul(block, index(grid.each)), grid.across
        starts = list[ir.Value]()
        for k, (pointer, step) in enumerate(zip(self.pointers, steps, strict=True)):
            where = b.mul(first, index(step))
            for i, axis in zip(indices, grid.outer, strict=True):
                where = b.add(where, b.mul(i, index(axis[1 + k])))
            starts.append(self.p.at(pointer, where, self.dtype))
        whole, rest = divmod(size, grid.each)
        if whole:
            is_whole = b.icmp_signed("<", block, index(whole))
            self.p.when(is_whole, lambda: self._lines(starts, grid.each))
        if rest:
            is_last = b.icmp_signed("==", block, index(whole))
            self.p.when(is_last, lambda: self._lines(starts, rest))

    def _lines(self, starts: list[ir.Value], count: int) -> None:
        """Some lines from the first one on, entry by entry."""
        p, width = self.p, self.grid.width
        firsts = range(0, count, width)
        zero = -0.0 if self.dtype.kind == "f" else 0  # 0.0 would change -0.0
        nothing = p.number(zero, vector(register_type(self.dtype), width))

        def entry(k: ir.Value, *totals: ir.Value) -> list[ir.Value]:
            places = [
                p.at(start, p.b.mul(k, index(step)), self.dtype)
                for start, step in zip(
                    starts, (self.kernel.source[-1], self.kernel.result[-1]), strict=True
                )
            ]
            pairs = zip(firsts, totals, strict=True)
            return [self._added(places, j, min(width, count - j), total) for j, total in pairs]

        p.loop(0, self.kernel.length, 1, entry, [nothing] * len(firsts))

    def _added(self, places: list[ir.Value], first: int, active: int, total: ir.Value) -> ir.Value:
        """The total with an entry of each line from `first` on, stored."""
        p, b, (_, step, to), width = self.p, self.p.b, self.grid.across, self.grid.width
        source, result = (
            p.at(place, first * far, self.dtype)
            for place, far in zip(places, (step, to), strict=True)
        )
        if width == 1 or step == 0:
            x = p.widened(p.load(source, self.dtype), width)
        else:
            x = p.load_lanes(source, self.dtype, 1, active).value
        if self.dtype == BOOL:
            total = b.or_(total, x)
        else:
            total = b.fadd(total, x) if self.dtype.kind == "f" else b.add(total, x)
        made = p.rounded(Vector(total, self.dtype, width))
        if width == 1:
            p.store(made, result)
        else:
            p.store_lanes(made, result, 1, active)
        return total
