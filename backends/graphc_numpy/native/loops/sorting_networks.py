"""Short lines sorted side by side: a line in each lane, by a network of comparisons.

Which entries are compared does not depend on them: Batcher's merge exchange (Knuth, The Art of
Computer Programming, 5.2.2, algorithm M). A network keeps no order of equal keys, so a key is one
number with the index below it. Where only the entries are asked for, and equal keys are equal
entries, the index is left out: not where a line holds -0.0 or a NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from llvmlite import ir

from graphc.ir.types import I32, I64, DType
from graphc.lowering.kernel.lines import LineKernel
from graphc_numpy.native.llvm.vectors import (
    I1,
    INT32,
    INT64,
    WIDTH,
    Printer,
    Vector,
    index,
    register_type,
    vector,
)
from graphc_numpy.native.loops.line_blocks import LineBlock, LineGrid, print_blocks
from graphc_numpy.native.loops.sort_keys import entry_of, key

LONGEST = 512  # entries of a line
FEWEST = WIDTH // 2  # lines that are worth it


def suits(kernel: LineKernel) -> bool:
    """Whether lines are short, and there are enough of them."""
    dtype, lines = kernel.params[0].dtype, LineGrid.of(kernel).lines
    return dtype.bytes < 8 and kernel.length <= LONGEST and lines >= FEWEST


def units(kernel: LineKernel) -> int:
    """Blocks of a line for each lane."""
    return LineGrid.of(kernel).units(WIDTH)


def scratch_bytes(kernel: LineKernel) -> int:
    """A key for each entry of the lines of a block."""
    return 8 * WIDTH * kernel.length


def print_units(
    p: Printer, kernel: LineKernel, pointers: tuple[ir.Value, ir.Value],
    units: tuple[ir.Value, ir.Value], scratch: ir.Value,
) -> None:  # fmt: skip
    """The units between two numbers."""
    print_blocks(p, kernel, WIDTH, pointers, units, lambda block: _Block(block, scratch).run())


class _Block:
    """Prints what is done with a block of lines."""

    def __init__(self, block: LineBlock, scratch: ir.Value) -> None:
        self.p, self.block, self.scratch = block.p, block, scratch
        self.n, self.dtype = block.kernel.length, block.kernel.params[0].dtype

    def run(self) -> None:
        if self.block.kernel.function == "order":
            self._with_index()
            return
        odd = self._fill_keys()
        if self.dtype.kind != "f":
            self._alone()
            return
        some = self.p.intrinsic("vector.reduce.or", odd, result=I1)
        self.p.when(some, self._with_index)
        self.p.when(self.p.b.not_(some), self._alone)

    def _at(self, k: ir.Value, dtype: DType) -> ir.Value:
        return self.p.at(self.scratch, self.p.b.mul(k, index(WIDTH)), dtype)

    # -- keys alone -------------------------------------------------------------------------------

    def _fill_keys(self) -> ir.Value:
        """Write the keys down; in which lanes equal keys may be different entries."""
        p, b = self.p, self.p.b

        def entry(k: ir.Value, odd: ir.Value) -> list[ir.Value]:
            x = self.block.load(k, 0, WIDTH)
            p.store_lanes(Vector(key(p, x), I32, WIDTH), self._at(k, I32))
            if self.dtype.kind != "f":
                return [odd]
            bits = b.bitcast(x.value, vector(INT32, WIDTH))
            zero = b.icmp_signed("==", bits, p.number(-(1 << 31), bits.type))
            nan = b.fcmp_unordered("uno", x.value, x.value)
            return [b.or_(odd, b.or_(zero, nan))]

        (odd,) = p.loop(0, self.n, 1, entry, [p.number(0, vector(I1, WIDTH))])
        return odd

    def _alone(self) -> None:
        self._sort(I32)

        def put(k: ir.Value) -> None:
            keys = self.p.load_lanes(self._at(k, I32), I32)
            self.block.store(entry_of(self.p, keys, self.dtype), k, 0)

        self.p.loop(0, self.n, 1, put)

    # -- keys with an index -----------------------------------------------------------------------

    def _with_index(self) -> None:
        p, b = self.p, self.p.b
        wide = vector(INT64, WIDTH)

        def fill(k: ir.Value) -> None:
            keys = b.zext(key(p, self.block.load(k, 0, WIDTH)), wide)
            both = b.or_(b.shl(keys, p.number(32, wide)), p.splat(k))
            p.store_lanes(Vector(both, I64, WIDTH), self._at(k, I64))

        def put(k: ir.Value) -> None:
            both = p.load_lanes(self._at(k, I64), I64).value
            if self.block.kernel.function == "order":
                order = b.trunc(both, vector(INT32, WIDTH))
                self.block.store(Vector(order, I32, WIDTH), k, 0)
            else:
                self._look_up(b.and_(both, p.number((1 << 32) - 1, wide)), k)

        p.loop(0, self.n, 1, fill)
        self._sort(I64)
        p.loop(0, self.n, 1, put)

    def _look_up(self, indices: ir.Value, k: ir.Value) -> None:
        """Entry k of each line is the one at its index."""
        b, empty = self.p.b, self.p.number(0, vector(register_type(self.dtype), WIDTH))
        lanes = list[Vector]()
        for lane in range(self.block.count):
            lanes.append(self.block.load(b.extract_element(indices, index(lane)), lane, 1))
        found: ir.Value = empty
        for lane, x in enumerate(lanes):
            found = b.insert_element(found, x.value, index(lane))
        self.block.store(Vector(found, self.dtype, WIDTH), k, 0)

    # -- the network ------------------------------------------------------------------------------

    def _sort(self, dtype: DType) -> None:
        """Knuth's variables: p = 1 << level; in its first pass d = p and r = 0, in later ones
        d = q - p and r = p, where q goes down from half of the length."""
        levels = (self.n - 1).bit_length()
        if levels:
            self.p.loop(0, levels, 1, partial(self._level, dtype, levels))

    def _level(self, dtype: DType, levels: int, number: ir.Value) -> None:
        b = self.p.b
        level = b.sub(index(levels - 1), number)
        step = b.shl(index(1), level)

        def one(turn: ir.Value) -> None:
            is_first = b.icmp_signed("==", turn, index(0))
            far = b.sub(b.shl(index(1), b.sub(index(levels), turn)), step)
            d, r = b.select(is_first, step, far), b.select(is_first, index(0), step)
            self._pass(dtype, (level, step), d, r)

        self.p.loop(0, b.add(number, index(1)), 1, one)

    def _pass(self, dtype: DType, of: Sequence[ir.Value], d: ir.Value, r: ir.Value) -> None:
        """Exchange entries i and i + d, where they are not in order, for all i with i & p = r."""
        p, b, (level, step) = self.p, self.p.b, of
        room = p.larger(b.sub(index(self.n), b.add(d, r)), index(0))
        below = b.sub(step, index(1))
        double = b.add(level, index(1))
        rest = b.and_(room, b.sub(b.shl(step, index(1)), index(1)))
        count = b.add(b.shl(b.lshr(room, double), level), p.smaller(rest, step))

        def exchange(c: ir.Value) -> None:
            outer = b.shl(b.lshr(c, level), double)
            i = b.add(b.add(outer, b.and_(c, below)), r)
            places = [self._at(k, dtype) for k in (i, b.add(i, d))]
            x, y = (p.load_lanes(place, dtype).value for place in places)
            for name, place in zip(("smin", "smax"), places, strict=True):
                p.store_lanes(Vector(p.intrinsic(name, x, y), dtype, WIDTH), place)

        p.loop(0, count, 1, exchange)
