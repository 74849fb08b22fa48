"""What one thread does of the columns of a row, in the order of additions of the CPU's kernels.

That order (see graphc_numpy.native.loops.columns) depends on nothing but the sizes. Where the CPU
takes a vector of rows, a thread takes a row, and all of its columns. Where it takes vectors along
the last column axis, a team of threads takes a row: one for each lane and, if that axis is the only
one, for each of the sums that take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isqrt, prod

from graphc_llvm import folds
from graphc_llvm.expression_codegen import ExpressionPrinter, Registers
from graphc_llvm.folds import ACCUMULATORS, BLOCK
from graphc_llvm.vectors import WIDTH, Printer, index
from llvmlite import ir

from graphc.lowering.kernel.code import Nest, Phase, RowReduction, Statement
from graphc.support.dataclass import dataclass

Totals = list[ir.Value]


@dataclass(frozen=True)
class RowPoint:
    """A point in the loops: its indices, and what is computed there already."""

    expressions: ExpressionPrinter
    registers: Registers
    indices: tuple[ir.Value, ...]

    def inside(self, at: dict[int, ir.Value], code: Sequence[Statement]) -> RowPoint:
        """The point in inner loops, where these axes have an index. code: what will run there."""
        indices = tuple(at.get(a, i) for a, i in enumerate(self.indices))
        expressions = self.expressions.with_indices(code, indices, at, self.registers)
        return RowPoint(expressions, dict(self.registers), indices)

    def run(self, code: Sequence[Statement]) -> None:
        """Print code here."""
        self.expressions.run(code, self.registers, self.indices, None)


@dataclass(frozen=True)
class TeamShare:
    """Which part of a row's columns a thread has: entry `lane` of each vector along the last axis,
    of every vector (chains 1), or of every fourth from number `chain` on."""

    lane: ir.Value
    chain: ir.Value
    chains: int

    @property
    def threads(self) -> int:
        return WIDTH * self.chains


def chains_of(nest: Nest) -> int:
    """The sums that take turns along the columns, if each can have threads of its own."""
    alone = len(nest.columns) == 1 and nest.columns[0] >= ACCUMULATORS * WIDTH
    return ACCUMULATORS if alone else 1


@dataclass(frozen=True)
class ColumnLoops:
    """Prints the loops over the columns of one phase. A total is a value for each reduction.

    share: None if the thread has all columns, one after the other
    fixed: an axis of which it has one entry, where the point stands
    """

    p: Printer
    nest: Nest
    phase: Phase
    share: TeamShare | None = None
    fixed: int | None = None

    @property
    def folds(self) -> list[RowReduction]:
        return [x for x in self.phase.code if isinstance(x, RowReduction)]

    def totals(self, point: RowPoint) -> Totals:
        """Run the phase in all columns that the thread has: what it adds up."""
        if not prod(self.nest.columns):
            return [self.p.constant(x.first, x.dtype).value for x in self.folds]
        return self._axis(0, point, self.nothing())

    @property
    def terms(self) -> int:
        """Sums that are made one by one, and then added in their order: of each entry of the first
        column axis, or of each block of a long one."""
        return -(-self.nest.columns[0] // self._term_length)

    @property
    def _term_length(self) -> int:
        n = self.nest.columns[0]
        return 1 if n <= 2 * BLOCK else max(BLOCK, isqrt(n))

    def term(self, number: ir.Value, point: RowPoint) -> Totals:
        """Run the phase in the columns of one of these sums."""
        b, length = self.p.b, index(self._term_length)
        first = b.mul(number, length)
        end = self.p.smaller(b.add(first, length), index(self.nest.columns[0]))
        return self.entries(first, end, 1, point)

    def entries(self, first: ir.Value, end: ir.Value, step: int, point: RowPoint) -> Totals:
        """Run the phase in some entries of the first column axis."""

        def turn(i: ir.Value, *carried: ir.Value) -> Totals:
            return self._axis(1, self._inside(0, i, point), carried)

        return self.p.loop(first, end, step, turn, self.nothing())

    def nothing(self, many: int = 1) -> Totals:
        """What folds begin with."""
        return [folds.identity(self.p, fold, 1) for fold in self.folds] * many

    def combined(self, xs: Sequence[ir.Value], ys: Sequence[ir.Value]) -> Totals:
        kinds = self.folds * (len(xs) // max(len(self.folds), 1))
        return [folds.combined(self.p, f, x, y) for f, x, y in zip(kinds, xs, ys, strict=True)]

    def _axis(self, k: int, point: RowPoint, totals: Sequence[ir.Value]) -> Totals:
        """Column axis k and all inside of it: the totals, with what these cells add."""
        if k == len(self.nest.columns):
            return self._element(point, totals)
        if len(self.nest.rows) + k == self.fixed:
            return self._axis(k + 1, point, totals)
        if self.share is not None and k == len(self.nest.columns) - 1:
            return self._lane(self.share, point, totals)
        n = self.nest.columns[k]

        def turn(i: ir.Value, *carried: ir.Value) -> Totals:
            return self._axis(k + 1, self._inside(k, i, point), carried)

        if k == 0 or not totals:
            return self._blocks(n, turn, totals)
        return self.combined(totals, self._blocks(n, turn, self.nothing()))

    def _inside(self, k: int, i: ir.Value, point: RowPoint) -> RowPoint:
        return point.inside({len(self.nest.rows) + k: i}, self.phase.code)

    def _element(self, point: RowPoint, totals: Sequence[ir.Value]) -> Totals:
        """One cell."""
        point.run(self.phase.code)
        return self.combined(totals, [point.registers[x.source].value for x in self.folds])

    def _blocks(self, n: int, turn: Callable[..., Totals], totals: Sequence[ir.Value]) -> Totals:
        """`for i in range(n)`; long chains of additions are cut into blocks."""
        if not totals or n <= 2 * BLOCK:
            return self.p.loop(0, n, 1, turn, totals)
        block = max(BLOCK, isqrt(n))

        def one(i: ir.Value, *carried: ir.Value) -> Totals:
            end = self.p.smaller(self.p.b.add(i, index(block)), index(n))
            nothing = self.nothing(len(totals) // len(self.folds))
            return self.combined(carried, self.p.loop(i, end, 1, turn, nothing))

        return self.p.loop(0, n, block, one, totals)

    # -- a lane of the last axis ------------------------------------------------------------------

    def _lane(self, share: TeamShare, point: RowPoint, totals: Sequence[ir.Value]) -> Totals:
        """The entries of the last column axis that are this thread's."""
        n, last = self.nest.columns[-1], len(self.nest.columns) - 1
        many = ACCUMULATORS if n >= ACCUMULATORS * WIDTH else 1
        if not totals or many == share.chains:
            b = self.p.b
            first = b.add(b.mul(share.chain, index(WIDTH)), share.lane)

            def turn(i: ir.Value, *carried: ir.Value) -> Totals:
                return self._element(self._inside(last, i, point), carried)

            sums = self._chain(n, share.threads, first, turn)
            return self.combined(totals, sums)
        return self.combined(totals, self._all_chains(n, share.lane, point))

    def _chain(
        self, n: int, step: int, first: ir.Value, turn: Callable[..., Totals], many: int = 1
    ) -> Totals:
        """`for i in range(first, n, step)`, in the blocks of the whole vectors.

        many: so many sums are made together; a turn is of all of them
        """
        whole, nothing, b = n // step, self.nothing(many), self.p.b
        if not nothing or whole <= 2 * BLOCK:
            return self.p.loop(first, n, step, turn, nothing)

        def place(i: ir.Value, *carried: ir.Value) -> Totals:
            return turn(b.add(b.mul(i, index(step)), first), *carried)

        sums = self._blocks(whole, place, nothing)
        return self.p.loop(b.add(first, index(whole * step)), n, step, turn, sums)

    def _all_chains(self, n: int, lane: ir.Value, point: RowPoint) -> Totals:
        """All sums that take turns, made by one thread, and their tree."""
        last, k = len(self.nest.columns) - 1, len(self.folds)
        step, b = ACCUMULATORS * WIDTH, self.p.b

        def vector(i: ir.Value, sums: Sequence[ir.Value]) -> Totals:
            return self._element(self._inside(last, i, point), sums)

        def turn(i: ir.Value, *carried: ir.Value) -> Totals:
            return [
                x
                for a in range(ACCUMULATORS)
                for x in vector(b.add(i, index(a * WIDTH)), carried[a * k : (a + 1) * k])
            ]

        whole = n // step * step
        sums = self._chain(whole, step, lane, turn, ACCUMULATORS)
        rest = []
        for a in range(ACCUMULATORS):
            there = b.add(lane, index(whole + a * WIDTH))
            one = self.p.loop(there, n, step, lambda i, *xs: vector(i, xs), sums[a * k :][:k])
            rest.append(one)
        trees = [[one[j] for one in rest] for j in range(k)]
        return [folds.tree_of(self.p, f, xs) for f, xs in zip(self.folds, trees, strict=True)]


def across_lanes(p: Printer, fold: RowReduction, xs: Sequence[ir.Value]) -> ir.Value:
    """The values of WIDTH lanes, reduced as the lanes of a vector are: halves onto halves."""
    values = list(xs)
    while len(values) > 1:
        half = len(values) // 2
        values = [folds.combined(p, fold, values[k], values[k + half]) for k in range(half)]
    return values[0]


def print_row(p: Printer, nest: Nest, point: RowPoint, fixed: int | None = None) -> None:
    """All phases of one row, by one thread; of one entry of the axis `fixed`."""
    for phase in nest.phases:
        if not phase.per_column:
            point.run(phase.code)
            continue
        loops = ColumnLoops(p, nest, phase, fixed=fixed)
        for fold, total in zip(loops.folds, loops.totals(point), strict=True):
            point.registers[fold.target] = folds.result(p, fold, total)
