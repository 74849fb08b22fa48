"""Lines sorted side by side: a line in each lane, by a network of comparisons.

Which entries are compared does not depend on them. Runs of as many keys as there are registers for
are sorted by Batcher's merge exchange (Knuth, The Art of Computer Programming, 5.2.2, algorithm M),
and then merged in pairs: the first key of one is compared with the last of the other, and so on to
their middle, so that no key of the lower half comes after one of the upper half; the halves are
merged in the same way by comparisons over half the distance (Batcher, Sorting networks and their
applications, 1968). Those over the shortest distances are made in registers again.

A network keeps no order of equal keys, so a key is one number with the index below it. Where only
the entries are asked for, and equal keys are equal entries, the index is left out: not where a line
holds -0.0 or a NaN. Whole numbers of 64 bits have no room for an index.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from llvmlite import ir

from graphc.ir.types import I32, I64, DType
from graphc.lowering.kernel.lines import LineKernel
from graphc_numpy.native.gemm.microkernels import helper
from graphc_numpy.native.llvm.vectors import (
    I1,
    INT32,
    INT64,
    POINTER,
    VOID,
    WIDTH,
    Printer,
    Vector,
    index,
    register_type,
    vector,
)
from graphc_numpy.native.loops.line_blocks import LineBlock, LineGrid, print_blocks
from graphc_numpy.native.loops.sort_keys import entry_of, key, key_dtype

LONGEST, SCRATCH = 512, 1 << 20  # entries of a line; bytes for longer ones
RUNS = {4: 16, 8: 8}  # keys that are sorted in registers, by the bytes of a key
FEWEST, MANY = WIDTH // 2, 3 * WIDTH // 4  # lines that are worth it; and of longer ones


def suits(kernel: LineKernel) -> bool:
    """Whether lines are short enough, and there are enough of them."""
    dtype, lines = kernel.params[0].dtype, LineGrid.of(kernel).lines
    if dtype.bytes == 8 and (kernel.function == "order" or dtype.kind == "f"):
        return False
    is_short = kernel.length <= LONGEST
    return lines >= (FEWEST if is_short else MANY) and scratch_bytes(kernel) <= SCRATCH


def units(kernel: LineKernel) -> int:
    """Blocks of a line for each lane."""
    return LineGrid.of(kernel).units(WIDTH)


def scratch_bytes(kernel: LineKernel) -> int:
    """A key for each entry of the lines of a block, if need be with an index."""
    dtype, places = kernel.params[0].dtype, -(-kernel.length // WIDTH) * WIDTH
    alone = kernel.function == "sorted" and dtype.kind != "f"
    return (key_dtype(dtype).bytes if alone else 8) * WIDTH * places


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
        alone = key_dtype(self.dtype)
        odd = self._fill_keys(alone)
        if self.dtype.kind != "f":
            self._alone(alone)
            return
        some = self.p.intrinsic("vector.reduce.or", odd, result=I1)
        self.p.when(some, self._with_index)
        self.p.when(self.p.b.not_(some), partial(self._alone, alone))

    def _at(self, k: ir.Value | int, dtype: DType) -> ir.Value:
        where = index(k) if isinstance(k, int) else k
        return self.p.at(self.scratch, self.p.b.mul(where, index(WIDTH)), dtype)

    # -- keys alone -------------------------------------------------------------------------------

    def _fill_keys(self, alone: DType) -> ir.Value:
        """Write the keys down; in which lanes equal keys may be different entries."""
        p, b = self.p, self.p.b

        def tile(k: ir.Value, many: int, odd: ir.Value) -> list[ir.Value]:
            for i, x in enumerate(self.block.load_tile(k, 0, many)):
                keys = Vector(key(p, x), alone, WIDTH)
                p.store_lanes(keys, self._at(b.add(k, index(i)), alone))
                if self.dtype.kind == "f":
                    bits = b.bitcast(x.value, vector(INT32, WIDTH))
                    zero = b.icmp_signed("==", bits, p.number(-(1 << 31), bits.type))
                    nan = b.fcmp_unordered("uno", x.value, x.value)
                    odd = b.or_(odd, b.or_(zero, nan))
            return [odd]

        (odd,) = self.block.tiles(tile, p.number(0, vector(I1, WIDTH)))
        return odd

    def _alone(self, alone: DType) -> None:
        self._sort(alone)

        def put(k: ir.Value, many: int) -> None:
            places = [self._at(self.p.b.add(k, index(i)), alone) for i in range(many)]
            keys = [self.p.load_lanes(place, alone) for place in places]
            self.block.store_tile([entry_of(self.p, x, self.dtype) for x in keys], k, 0)

        self.block.tiles(put)

    # -- keys with an index -----------------------------------------------------------------------

    def _with_index(self) -> None:
        p, b = self.p, self.p.b
        wide = vector(INT64, WIDTH)

        def fill(first: ir.Value, many: int) -> None:
            for i, x in enumerate(self.block.load_tile(first, 0, many)):
                k = b.add(first, index(i))
                both = b.or_(b.shl(b.zext(key(p, x), wide), p.number(32, wide)), p.splat(k))
                p.store_lanes(Vector(both, I64, WIDTH), self._at(k, I64))

        def put(first: ir.Value, many: int) -> None:
            places = [b.add(first, index(i)) for i in range(many)]
            both = [p.load_lanes(self._at(k, I64), I64).value for k in places]
            orders = [Vector(b.trunc(x, vector(INT32, WIDTH)), I32, WIDTH) for x in both]
            self.block.store_tile(orders, first, 0)

        def look_up(k: ir.Value) -> None:
            both = p.load_lanes(self._at(k, I64), I64).value
            self._look_up(b.and_(both, p.number((1 << 32) - 1, wide)), k)

        self.block.tiles(fill)
        self._sort(I64)
        if self.block.kernel.function == "order":
            self.block.tiles(put)
        else:
            p.loop(0, self.n, 1, look_up)

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
        """Keys behind the last one of a line are the largest there are, and stay where they are."""
        p, run = self.p, RUNS[dtype.bytes]
        least, whole = run, -(-self.n // run) * run
        t = vector(INT64 if dtype == I64 else INT32, WIDTH)
        most = Vector(p.number((1 << (8 * dtype.bytes - 1)) - 1, t), dtype, WIDTH)
        for k in range(self.n, whole):
            p.store_lanes(most, self._at(k, dtype))
        short = [(i, i + d) for d in _halves(run) for i in range(run) if not i & d]
        self._runs(dtype, whole, "sort", list(merge_exchange(run)))
        while run < whole:
            passes = [(run, True), *((far, False) for far in _halves(run) if far >= least)]
            for first, *rest in _in_twos(passes, whole):
                self._pass(dtype, whole, *first, then_half=bool(rest))
            self._runs(dtype, whole, "merge", short)
            run *= 2

    def _pass(self, dtype: DType, whole: int, run: int, mirrored: bool, then_half: bool) -> None:
        """Of each two runs, compare each key with the one at its place, or mirrored the first with
        the last one, and so on; then_half: and each key with the one half a run further."""
        p, b, half = self.p, self.p.b, run // 2

        def pair(first: ir.Value) -> None:
            second = b.add(first, index(2 * run - 1 if mirrored else run))

            def some(i: ir.Value) -> None:
                quads = list[list[ir.Value]]()
                for k in range(RUNS[dtype.bytes] // (4 if then_half else 2)):
                    at = b.add(i, index(k))
                    ends = b.add(first, at), (b.sub if mirrored else b.add)(second, at)
                    quads.append([self._at(x, dtype) for x in ends])
                    if then_half:
                        at = b.add(at, index(half))
                        ends = b.add(first, at), (b.sub if mirrored else b.add)(second, at)
                        quads[-1] += [self._at(x, dtype) for x in ends]
                self._compared(dtype, quads, mirrored)

            there = b.sub(index(whole), b.add(first, index(run)))  # keys of the second run
            missing = p.larger(b.sub(index(run), there), index(0)) if mirrored else index(0)
            count = index(run) if mirrored else p.smaller(index(run), there)
            step = RUNS[dtype.bytes] // (4 if then_half else 2)
            if then_half:
                missing, count = index(0), index(half)
            p.loop(missing, count, step, some)

        p.loop(0, whole, 2 * run, pair)

    def _compared(self, dtype: DType, places: Sequence[Sequence[ir.Value]], mirrored: bool) -> None:
        """Put keys at two places in order: a, c. At four: a, c and b, d; then a, b and c, d."""
        keys = [[self.p.load_lanes(x, dtype).value for x in some] for some in places]
        for some, xs in zip(places, keys, strict=True):
            pairs = [(0, 1)]
            if len(xs) == 4:  # a, its partner, b, its partner
                pairs += [(2, 3), (0, 2), (3, 1) if mirrored else (1, 3)]
            for i, j in pairs:
                xs[i], xs[j] = (self.p.intrinsic(n, xs[i], xs[j]) for n in ("smin", "smax"))
            for x, place in zip(xs, some, strict=True):
                self.p.store_lanes(Vector(x, dtype, WIDTH), place)

    def _runs(self, dtype: DType, whole: int, name: str, pairs: list[tuple[int, int]]) -> None:
        """Compare keys of each run in registers; the function is printed at its first use."""
        p, run = self.p, RUNS[dtype.bytes]
        full = f"{name}.{dtype}.{run}"
        function = p.b.module.globals.get(full)
        if function is None:
            function = helper(p.b.module, ir.FunctionType(VOID, [POINTER]), full)
            inside = Printer(ir.IRBuilder(function.append_basic_block("entry")))
            places = [inside.at(function.args[0], k * WIDTH, dtype) for k in range(run)]
            xs = [inside.load_lanes(place, dtype).value for place in places]
            for i, j in pairs:
                xs[i], xs[j] = (inside.intrinsic(n, xs[i], xs[j]) for n in ("smin", "smax"))
            for x, place in zip(xs, places, strict=True):
                inside.store_lanes(Vector(x, dtype, WIDTH), place)
            inside.b.ret_void()
        p.loop(0, whole, run, lambda k: p.b.call(function, [self._at(k, dtype)]) and None)


def _in_twos(passes: list[tuple[int, bool]], whole: int) -> Iterator[list[tuple[int, bool]]]:
    """A pass, or two of them that are made at once: where no run ends early."""
    while passes:
        many = 2 if len(passes) > 1 and whole % (2 * passes[0][0]) == 0 else 1
        yield passes[:many]
        passes = passes[many:]


def _halves(n: int) -> list[int]:
    return [n >> k for k in range(1, n.bit_length())]


def merge_exchange(n: int) -> Iterator[tuple[int, int]]:
    """Pairs of places that sort n keys, where each pair is put in order; Knuth's variables."""
    levels = (n - 1).bit_length()
    for level in reversed(range(levels)):
        p = 1 << level
        q, r, d = 1 << levels >> 1, 0, p
        while True:
            yield from ((i, i + d) for i in range(n - d) if i & p == r)
            if q == p:
                break
            d, q, r = q - p, q >> 1, p
