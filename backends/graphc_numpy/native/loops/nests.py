"""Loop nests as machine code: what is dealt out to threads, the loops over rows, the phases.

The lanes of a vector are neighbors along the last row axis (`by_rows`: a fold goes through the
columns one by one), or along the last column axis (a fold ends with one over the lanes).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from graphc_llvm import folds
from graphc_llvm.expression_codegen import ExpressionPrinter
from graphc_llvm.folding import FoldingBuilder
from graphc_llvm.helpers import helper
from graphc_llvm.prefetch import Prefetch, prefetches
from graphc_llvm.vectors import (
    FEW,
    INT64,
    POINTER,
    VOID,
    WIDTH,
    Printer,
    Vector,
    index,
)
from llvmlite import ir

from graphc.lowering.kernel.code import Load, Nest, RowReduction, Statement, registers
from graphc.support.dataclass import dataclass
from graphc_numpy.native.loops import wide_rows
from graphc_numpy.native.loops.columns import Columns, LoopPoint, run_each
from graphc_numpy.native.loops.invariant_motion import HoistedCode, HoistedPhase, effort, hoisted
from graphc_numpy.native.loops.loop_interchange import interchanged
from graphc_numpy.native.machine import host_printer, target

GRAIN = 4096  # cells of a unit, about
SHORT = 8  # statements that are rather printed again than looped over


@dataclass(frozen=True)
class UnitGrid:
    """What a unit is: `rows` of the outer rows, whole; or `strip` entries along the lanes of one.

    outer: sizes of the axes whose entries are outer rows; inner: of those inside of an outer row;
    length: entries of the axis of lanes (1 where the lanes do not go along the rows)
    many: vectors that are computed together
    wide: entries of a row that go through the columns together; 0: those of `many` vectors do
    """

    outer: tuple[int, ...]
    inner: tuple[int, ...]
    length: int
    rows: int
    strip: int
    many: int = 1
    wide: int = 0

    @property
    def strips(self) -> int:
        """Parts of an outer row."""
        return -(-self.length // self.strip)

    @property
    def units(self) -> int:
        """Parts that threads may share."""
        return -(-prod(self.outer) // self.rows) * self.strips


def units(nest: Nest) -> int:
    """How many parts a nest has; 1 if its rows must run in order."""
    return _grid(interchanged(nest)).units


def scratch_bytes(nest: Nest) -> int:
    """A nest needs none."""
    return 0


def print_nest(module: ir.Module, nest: Nest, name: str) -> ir.Function:
    """`void name(ptr params..., i64 begin, i64 end, ptr scratch, ptr errors)`: those units."""
    kinds = [*(POINTER for _ in nest.params), INT64, INT64, POINTER, POINTER]
    function = helper(module, ir.FunctionType(VOID, kinds), name)
    nest = interchanged(nest)
    few = prod(nest.rows) * prod(nest.columns) <= FEW
    p = host_printer(FoldingBuilder(function.append_basic_block("entry")), few)
    *pointers, begin, end, _, errors = function.args
    if prod(nest.rows):
        grid, asked = _grid(nest), dict[int, Prefetch]()
        if _by_rows(nest):
            asked |= prefetches(nest, grid.many * WIDTH)
        expressions = ExpressionPrinter(p, nest.params, pointers, errors, prefetches=asked)
        printer = _NestPrinter(p, nest, grid)
        if grid.units == 1:
            some = p.b.icmp_signed("<", begin, end)
            p.when(some, lambda: printer.units(expressions, index(0), index(1)))
        else:
            printer.units(expressions, begin, end)
    p.b.ret_void()
    return function


def _by_rows(nest: Nest) -> bool:
    return nest.lanes == "rows" and bool(nest.rows) and not _is_chained(nest)


def _is_chained(nest: Nest) -> bool:
    """Whether a row may read what the row before it has written."""
    loads = (x for phase in nest.phases for x in phase.code if isinstance(x, Load))
    return nest.serial and any(nest.params[x.access.slot].written for x in loads)


def _grid(nest: Nest) -> UnitGrid:
    columns = max(prod(nest.columns), 1)
    grain = max(prod(nest.rows) * columns, 1) if nest.serial else GRAIN
    by_rows = _by_rows(nest)
    length = nest.rows[-1] if by_rows else 1
    many = max(min(_side_by_side(nest), -(-length // WIDTH)), 1) if by_rows else 1
    step = many * WIDTH if by_rows else 1
    wide = wide_rows.width(nest, step) if by_rows and nest.columns else 0
    strip = wide or -(-max(grain // columns, 1) // step) * step
    axes = nest.rows[:-1] if by_rows else nest.rows
    whole, k = columns * length, len(axes)
    while strip >= length and k and whole * axes[k - 1] <= grain:
        k -= 1
        whole *= axes[k]
    rows = max(grain // max(whole, 1), 1) if strip >= length else 1
    return UnitGrid(axes[:k], axes[k:], length, rows, strip, many, wide)


def _side_by_side(nest: Nest) -> int:
    """Vectors in one turn of a fold: memory is read in long pieces; accumulators in registers."""
    code = [x for phase in nest.phases if phase.per_column for x in phase.code]
    # A vector of 8-byte entries takes twice the registers.
    long, sums = (
        effort(code),
        sum(x.dtype.bytes // 4 or 1 for x in code if isinstance(x, RowReduction)),
    )
    if not nest.columns or long > 24:
        return 1
    if long <= 2:
        return 8 // max(sums, 1) if nest.rows[-1] >= 512 else 4
    few = target().instructions != "avx512" and sums > 1
    return 2 if long > 12 or few else 4


class _NestPrinter:
    """Prints the loops of one nest."""

    def __init__(self, p: Printer, nest: Nest, grid: UnitGrid) -> None:
        self.p, self.nest, self.grid = p, nest, grid
        self.by_rows = _by_rows(nest)
        self.first = len(nest.rows)  # the first column axis
        self.hoisted: HoistedCode = hoisted(nest, self.by_rows)
        self._all = [*self.hoisted.outer, *self.hoisted.statements]

    # -- rows -----------------------------------------------------------------------------------

    def units(self, expressions: ExpressionPrinter, begin: ir.Value, end: ir.Value) -> None:
        """The rows of the units from `begin` to `end`."""
        axes = len(self.nest.rows) + len(self.nest.columns)
        point = LoopPoint(expressions, {}, (index(0),) * axes)
        point.run(self.hoisted.entry, None)
        grid, b = self.grid, self.p.b
        if grid.strips == 1:
            start, stop = (b.mul(x, index(grid.rows)) for x in (begin, end))
            stop = self._least(stop, prod(grid.outer))
            self.p.loop(start, stop, 1, lambda r: self._outer_row(point, r, index(0), index(1)))
        elif prod(grid.outer) == 1:
            self._outer_row(point, index(0), begin, end)
        else:
            self.p.loop(begin, end, 1, lambda u: self._strip(point, u))

    def _strip(self, point: LoopPoint, unit: ir.Value) -> None:
        b, strips = self.p.b, index(self.grid.strips)
        strip = b.urem(unit, strips)
        self._outer_row(point, b.udiv(unit, strips), strip, b.add(strip, index(1)))

    def _outer_row(self, point: LoopPoint, row: ir.Value, begin: ir.Value, end: ir.Value) -> None:
        """The strips from `begin` to `end` of one outer row."""
        at = dict(enumerate(self.p.positions(row, self.grid.outer)))
        self._inner(point.inside(at, self._all), len(self.grid.outer), begin, end)

    def _inner(self, point: LoopPoint, axis: int, begin: ir.Value, end: ir.Value) -> None:
        """The rows from an inner axis on."""
        if axis < len(self.grid.outer) + len(self.grid.inner):

            def turn(i: ir.Value) -> None:
                self._inner(point.inside({axis: i}, self._all), axis + 1, begin, end)

            self.p.loop(0, self.nest.rows[axis], 1, turn)
            return
        point.run(self.hoisted.outer, None)
        if self.by_rows:
            self._vectors_of_rows(point, begin, end)
        else:
            self._row([point])

    def _vectors_of_rows(self, point: LoopPoint, begin: ir.Value, end: ir.Value) -> None:
        grid, b = self.grid, self.p.b
        step = grid.many * WIDTH
        whole = grid.length // step * step
        start, stop = index(0), index(whole)
        if grid.strips > 1:
            start = b.mul(begin, index(grid.strip))
            stop = self._least(b.mul(end, index(grid.strip)), whole)
        if grid.wide:
            self._wide(point, start, stop)
        elif whole:
            self.p.loop(start, stop, step, lambda i: self._side_by_side(point, i, step))
        if whole == grid.length:
            return

        def rest() -> None:
            self._side_by_side(point, index(whole), grid.length - whole)

        if grid.strips > 1:
            at_end = b.icmp_signed("==", end, index(grid.strips))
            self.p.when(b.and_(at_end, b.icmp_signed("<", begin, end)), rest)
        else:
            rest()

    def _wide(self, point: LoopPoint, start: ir.Value, stop: ir.Value) -> None:
        """Rows from start to stop, a strip at a time."""
        grid, code = self.grid, self.hoisted
        phase = next(phase for phase in code.phases if phase.per_column)
        columns = Columns(self.p, self.nest, phase, True, self.lanes, self.row_lanes)
        rows = wide_rows.WideRows(self.p, self.nest, code, columns, grid.many, grid.wide)

        def turn(i: ir.Value) -> None:
            rows.strip(point, i, self.p.smaller(self.p.b.add(i, index(grid.wide)), stop))

        self.p.loop(start, stop, grid.wide, turn)

    def _side_by_side(self, point: LoopPoint, first: ir.Value, entries: int) -> None:
        """Rows from `first` on, a vector of them at a time."""
        point = point.inside({self.first - 1: first}, self.hoisted.statements)
        actives = [min(entries - k, WIDTH) for k in range(0, entries, WIDTH)]
        self._row([point.beside(k, active) for k, active in enumerate(actives)])

    def _least(self, x: ir.Value, limit: int) -> ir.Value:
        return self.p.smaller(x, index(limit))

    # -- stages ---------------------------------------------------------------------------------

    @property
    def lanes(self) -> int | None:
        """The axis of lanes, in the innermost code of a cell phase."""
        if self.by_rows:
            return self.first - 1
        return self.first + len(self.nest.columns) - 1 if self.nest.columns else None

    @property
    def row_lanes(self) -> int | None:
        """The axis of lanes outside of the columns."""
        return self.first - 1 if self.by_rows else None

    def _row(self, points: Sequence[LoopPoint]) -> None:
        """All phases of a row, or of vectors of rows side by side."""
        phases = list(self.hoisted.phases)
        last = max((k for k, phase in enumerate(phases) if phase.per_column), default=-1)
        for phase in phases[: last + 1]:
            if not phase.per_column:
                self._each(points, phase.innermost)
            elif prod(self.nest.columns):
                self._columns(phase, points)
            else:
                for point in points:
                    for fold in phase.folds:
                        point.registers[fold.target] = self.p.constant(fold.first, fold.dtype)
        end = [x for phase in phases[last + 1 :] for x in phase.innermost]
        whole = [point for point in points if point.active == WIDTH]
        if len(whole) < 2 or effort(end) <= SHORT:
            self._each(points, end)
        else:
            self._looped(whole, end)
            self._each(points[len(whole) :], end)

    def _each(self, points: Sequence[LoopPoint], code: Sequence[Statement]) -> None:
        run_each(points, code, self.row_lanes)

    def _looped(self, points: Sequence[LoopPoint], code: Sequence[Statement]) -> None:
        """Long code for vectors side by side, printed once: what it reads waits on the stack."""
        p, first, axis = self.p, points[0], self.first - 1
        kept = dict[int, tuple[Vector, ir.Value]]()
        for k in sorted({k for x in code for k in registers(x)} & set(first.registers)):
            xs = [point.registers[k] for point in points]
            if any(x.value is not xs[0].value for x in xs):
                kept[k] = (xs[0], self._array(xs))

        def turn(i: ir.Value) -> None:
            row = p.b.add(first.indices[axis], p.b.mul(i, index(WIDTH)))
            point = first.elsewhere({axis: row})
            for k, (x, array) in kept.items():
                where = p.b.gep(array, [i], source_etype=x.type)
                point.registers[k] = Vector(p.b.load(where, typ=x.type), x.dtype, x.width)
            point.run(code, axis)

        p.loop(0, len(points), 1, turn)

    def _array(self, xs: Sequence[Vector]) -> ir.Value:
        """The values, one after the other on the stack."""
        b, t = self.p.b, xs[0].type
        with b.goto_entry_block():
            array = b.alloca(t, size=index(len(xs)))
        for k, x in enumerate(xs):
            b.store(x.value, b.gep(array, [index(k)], source_etype=t))
        return array

    def _columns(self, phase: HoistedPhase, points: Sequence[LoopPoint]) -> None:
        """A cell phase: all columns."""
        turn = Columns(self.p, self.nest, phase, self.by_rows, self.lanes, self.row_lanes)
        totals = turn.axis(0, points, turn.nothing(len(points)))
        for k, point in enumerate(points):
            for fold, total in zip(phase.folds, totals[k * len(phase.folds) :], strict=False):
                if not self.by_rows and self.lanes is not None:
                    total = folds.across(self.p, fold, total)
                point.registers[fold.target] = folds.result(self.p, fold, total)


__all__ = ["print_nest", "scratch_bytes", "units"]
