"""The loops over the columns of a row, and the reductions over them.

A sum has a fixed order, which depends on nothing but the sizes. Along the last column axis, if its
entries are the lanes of vectors, ACCUMULATORS sums take turns. Long chains of additions are divided
into blocks, whose sums are added. The sum over an inner axis is completed before it is added over
the outer ones. So the rounding error grows at most with the square root of a chain's length, as in
NumPy's pairwise sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isqrt

from graphc_llvm import folds
from graphc_llvm.expression_codegen import ExpressionPrinter, Registers
from graphc_llvm.folds import ACCUMULATORS, BLOCK
from graphc_llvm.vectors import WIDTH, Printer, Vector, index
from llvmlite import ir

from graphc.lowering.kernel.code import (
    Apply,
    AxisIndex,
    Check,
    Load,
    Nest,
    Number,
    RowReduction,
    Statement,
    registers,
)
from graphc.lowering.kernel.random_numbers import RandomNumber
from graphc.support.dataclass import dataclass
from graphc_numpy.native.loops.invariant_motion import HoistedPhase, effort


@dataclass(frozen=True)
class LoopPoint:
    """A point in the loops: its indices, what is computed there already, and how many lanes are
    in use."""

    expressions: ExpressionPrinter
    registers: Registers
    indices: tuple[ir.Value, ...]
    active: int = WIDTH

    def inside(self, at: dict[int, ir.Value], code: Sequence[Statement]) -> LoopPoint:
        """The point in inner loops, where these axes have an index. code: what will run there."""
        indices = tuple(at.get(a, i) for a, i in enumerate(self.indices))
        expressions = self.expressions.with_indices(code, indices, at, self.registers)
        return LoopPoint(expressions, dict(self.registers), indices, self.active)

    def elsewhere(self, at: dict[int, ir.Value]) -> LoopPoint:
        """A point elsewhere, whose addresses are computed anew from the pointers."""
        indices = tuple(at.get(a, i) for a, i in enumerate(self.indices))
        expressions = replace(self.expressions, bases={}, shift=0)
        return LoopPoint(expressions, dict(self.registers), indices, self.active)

    def run(self, code: Sequence[Statement], lanes: int | None) -> None:
        """Print code here."""
        self.expressions.run(code, self.registers, self.indices, lanes, self.active)

    def beside(self, vectors: int, active: int = WIDTH) -> LoopPoint:
        """The point this many vectors further along the axis of lanes."""
        expressions = self.expressions.shifted(vectors * WIDTH)
        return LoopPoint(expressions, dict(self.registers), self.indices, active)


def run_each(points: Sequence[LoopPoint], code: Sequence[Statement], lanes: int | None) -> None:
    """Print code at points side by side along the axis of lanes; what is the same at all is
    printed once."""
    if len(points) < 2 or lanes is None:
        for point in points:
            point.run(code, lanes)
        return
    first, *others = points
    alike = {k for k, x in first.registers.items() if _everywhere(k, x, others)}
    once, rest = list[Statement](), list[Statement]()
    for x in code:
        if _is_alike(x, lanes, first.expressions) and alike.issuperset(registers(x)):
            alike.add(x.target)  # type: ignore[union-attr]
            once.append(x)
        else:
            rest.append(x)
    first.run(once, lanes)
    for point in others:
        point.registers.update({k: first.registers[k] for k in alike})
    for point in points:
        point.run(rest, lanes)


def _everywhere(k: int, x: Vector, points: Sequence[LoopPoint]) -> bool:
    return all(k in p.registers and p.registers[k].value is x.value for p in points)


def _is_alike(x: Statement, lanes: int, expressions: ExpressionPrinter) -> bool:
    """Whether a statement does the same at all points along the axis of lanes, if its registers
    do."""
    match x:
        case Load(access=access):
            return access.strides[lanes] == 0 and not expressions.params[access.slot].written
        case RandomNumber(strides=strides):
            return strides[lanes] == 0
        case AxisIndex(axis=axis):
            return axis != lanes
        case _:
            return isinstance(x, Number | Apply | Check)


@dataclass(frozen=True)
class Columns:
    """Prints the loops over columns of one phase. totals: a value for each point and reduction."""

    p: Printer
    nest: Nest
    phase: HoistedPhase
    by_rows: bool
    lanes: int | None
    row_lanes: int | None

    def nothing(self, points: int = 1) -> list[ir.Value]:
        """What folds begin with."""
        width = 1 if self.lanes is None else WIDTH
        return [folds.identity(self.p, fold, width) for fold in self.phase.folds] * points

    def combined(self, xs: Sequence[ir.Value], ys: Sequence[ir.Value]) -> list[ir.Value]:
        """Totals of both."""
        kinds = self.phase.folds * (len(xs) // max(len(self.phase.folds), 1))
        return [folds.combined(self.p, f, x, y) for f, x, y in zip(kinds, xs, ys, strict=True)]

    def axis(
        self, k: int, points: Sequence[LoopPoint], totals: Sequence[ir.Value]
    ) -> list[ir.Value]:
        """Column axis k and all inside of it: the totals, with what these cells add."""
        if k == len(self.nest.columns):
            return self.element(points, totals)
        run_each(points, self.phase.code[k], self.row_lanes)
        n, last = self.nest.columns[k], k == len(self.nest.columns) - 1
        if last and not self.by_rows:
            return self.vectors(points[0], totals)

        def turn(i: ir.Value, *carried: ir.Value) -> list[ir.Value]:
            return self.axis(k + 1, self._inside(k, i, points), carried)

        if k == 0 or not totals:
            return self.blocks(n, 1, 1, turn, totals)
        return self.combined(totals, self.blocks(n, 1, 1, turn, self.nothing(len(points))))

    def _inside(self, k: int, i: ir.Value, points: Sequence[LoopPoint]) -> list[LoopPoint]:
        code = [x for inner in self.phase.code[k + 1 :] for x in inner]
        return [point.inside({len(self.nest.rows) + k: i}, code) for point in points]

    def element(self, points: Sequence[LoopPoint], totals: Sequence[ir.Value]) -> list[ir.Value]:
        """One cell of each place."""
        run_each(points, self.phase.innermost, self.lanes)
        sources = [self._source(fold, point) for point in points for fold in self.phase.folds]
        return self.combined(totals, sources)

    def _source(self, fold: RowReduction, point: LoopPoint) -> ir.Value:
        x: Vector = point.registers[fold.source]
        if self.lanes is None:
            return x.value
        wide = self.p.widened(x, WIDTH)
        return wide if self.by_rows else folds.masked(self.p, fold, wide, point.active)

    def blocks(
        self, n: int, step: int, chains: int, turn: Callable[..., Sequence[ir.Value]],
        totals: Sequence[ir.Value],
    ) -> list[ir.Value]:  # fmt: skip
        """`for i in range(0, n, step)`; long chains of additions are cut into blocks.

        chains: so many entries go on beside each other
        """
        length = n // chains
        if not totals or length <= 2 * BLOCK:
            return self.p.loop(0, n, step, turn, totals)
        block = index(max(BLOCK, isqrt(length)) * chains)

        def one(i: ir.Value, *carried: ir.Value) -> list[ir.Value]:
            end = self.p.intrinsic("smin", self.p.b.add(i, block), index(n))
            nothing = self.nothing(len(totals) // len(self.phase.folds))
            return self.combined(carried, self.p.loop(i, end, step, turn, nothing))

        return self.p.loop(0, n, block.constant, one, totals)

    # -- lanes along the last column axis -------------------------------------------------------

    def vectors(self, point: LoopPoint, totals: Sequence[ir.Value]) -> list[ir.Value]:
        """The last column axis, a vector at a time; accumulators take turns."""
        n = self.nest.columns[-1]
        turns, many = n // WIDTH, ACCUMULATORS if n >= ACCUMULATORS * WIDTH else 1
        unroll = self._unroll(turns)
        main, sums = turns // many * many, self.nothing(many)
        if not sums or turns // many <= 2 * BLOCK:
            main = turns // unroll * unroll

        def turn(count: int) -> Callable[..., list[ir.Value]]:
            return lambda i, *carried: self._turns(point, i, count, carried)

        if main:
            chains = many * WIDTH
            sums = self.blocks(main * WIDTH, unroll * WIDTH, chains, turn(unroll), sums)
        if main < turns:
            sums = self.p.loop(main * WIDTH, turns * WIDTH, WIDTH, turn(1), sums)
        if n % WIDTH:
            sums = self._turns(point, index(turns * WIDTH), 1, sums, n % WIDTH)
        return self._all_totals(sums, -(-n // WIDTH), many, totals)

    def _unroll(self, turns: int) -> int:
        """Vectors in one turn of the loop; the order of additions is the same for any."""
        code = effort(self.phase.innermost)
        most = 4 if code <= 2 else 2 if code <= 10 else 1
        return most if turns >= most else 1

    def _turns(
        self, point: LoopPoint, first: ir.Value, count: int, carried: Sequence[ir.Value],
        active: int = WIDTH,
    ) -> list[ir.Value]:  # fmt: skip
        """Some vectors, one after the other; the first accumulator gets what the first one adds."""
        point = self._inside(len(self.nest.columns) - 1, first, [point])[0]
        sums, n = list(carried), len(self.phase.folds)
        for k in range(count):
            sums = sums[n:] + self.element([point.beside(k, active)], sums[:n])
        return sums

    def _all_totals(
        self, sums: list[ir.Value], turns: int, many: int, totals: Sequence[ir.Value]
    ) -> list[ir.Value]:
        """All accumulators, in the order of the vectors that they began with, and the totals."""
        n, trees = len(self.phase.folds), list[ir.Value]()
        for k, fold in enumerate(self.phase.folds):
            order = [sums[(j - turns) % many * n + k] for j in range(many)]
            trees.append(folds.tree_of(self.p, fold, order))
        return self.combined(totals, trees)
