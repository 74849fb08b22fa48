"""Some lines that a block works on together: where they lie, and the loops over their entries."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from graphc_llvm.vectors import Printer, index
from llvmlite import ir

from graphc.lowering.kernel.lines import LineKernel
from graphc.support.dataclass import dataclass
from graphc_cupy.ptx.threads import BlockFunction


def groups(kernel: LineKernel, each: int) -> int:
    """How many groups of `each` lines there are; the last one may have fewer."""
    return -(-prod(kernel.rows) // each) if kernel.length else 0


@dataclass(frozen=True)
class LineGroup:
    """`each` lines from line `first` on."""

    f: BlockFunction
    kernel: LineKernel
    first: ir.Value
    each: int

    @property
    def p(self) -> Printer:
        return self.f.p

    def address(self, slot: int, line: ir.Value, entry: ir.Value) -> ir.Value:
        """Of an entry of the source (slot 0), or of the result (1). line: of the group"""
        b, kernel = self.p.b, self.kernel
        strides = (kernel.source, kernel.result)[slot]
        at = self.p.positions(b.add(self.first, line), kernel.rows)
        where: ir.Value = index(0)
        for i, stride in zip([*at, entry], strides, strict=True):
            where = b.add(where, b.mul(i, index(stride)))
        return self.p.at(self.f.pointers[slot], where, kernel.params[slot].dtype)

    def entries(
        self, slot: int, count: ir.Value | int, body: Callable[[ir.Value, ir.Value], None]
    ) -> None:
        """body(line, k) for every line that there is, and k below count, shared by the threads:
        neighbors among these reach neighbors in memory."""
        b, threads = self.p.b, self.f.threads
        many = index(count) if isinstance(count, int) else count
        along = abs((self.kernel.source, self.kernel.result)[slot][-1]) == 1 or self.each == 1

        def one(e: ir.Value) -> None:
            if along:
                line, k = b.udiv(e, many), b.urem(e, many)
            else:
                k, line = b.udiv(e, index(self.each)), b.urem(e, index(self.each))
            self.p.when(self.exists(line), lambda: body(line, k))

        self.p.loop(threads.index, b.mul(many, index(self.each)), threads.count, one)

    def exists(self, line: ir.Value) -> ir.Value:
        """Whether the group has a line of that number."""
        lines = prod(self.kernel.rows)
        if lines % self.each == 0:
            return ir.Constant(ir.IntType(1), 1)
        return self.p.b.icmp_signed("<", self.p.b.add(self.first, line), index(lines))
