"""Loop nests as machine code: what is dealt out to threads, the loops, the folds.

The lanes of a vector are neighbours along the last row axis (`by_rows`: a fold goes through the
columns one by one), or along the last column axis (a fold ends with one over the lanes).

A sum has a fixed shape, which depends on nothing but the sizes: ACCUMULATORS (by columns) take
turns, chains of additions are cut into blocks, whose sums are added, and the sum over an inner axis
is made apart from that over the outer ones. So the error grows with the root of the length of a
chain or less, as with NumPy's pairwise sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isqrt, prod

from llvmlite import ir

from graphc.kernels.code import Fold, Load, Nest, Statement
from graphc_numpy.native import folds, stages
from graphc_numpy.native.cells import Cells, Registers
from graphc_numpy.native.lanes import INT64, POINTER, VOID, WIDTH, Lanes, Printer, index
from graphc_numpy.native.machine import target
from graphc_numpy.native.stages import Schedule, Stage, schedule

GRAIN = 4096  # cells of a unit, about
ACCUMULATORS = 4
BLOCK = 128  # additions in a chain


@dataclass(frozen=True)
class Grid:
    """What a unit is: `rows` of the outer rows, whole; or `strip` entries along the lanes of one.

    outer: how many outer rows there are; length: entries of the axis of lanes in each (1 where the
    lanes do not go along the rows); many: vectors that are computed together
    """

    outer: int
    length: int
    rows: int
    strip: int
    many: int = 1

    @property
    def strips(self) -> int:
        """Parts of an outer row."""
        return -(-self.length // self.strip)

    @property
    def units(self) -> int:
        """Parts that threads may share."""
        return -(-self.outer // self.rows) * self.strips


def units(nest: Nest) -> int:
    """How many parts a nest has; 1 if its rows must run in order."""
    return _grid(nest).units


def scratch_bytes(nest: Nest) -> int:
    """A nest needs none."""
    return 0


def print_nest(module: ir.Module, nest: Nest, name: str) -> ir.Function:
    """`void name(ptr params..., i64 begin, i64 end, ptr scratch, ptr errors)`: those units."""
    kinds = [*(POINTER for _ in nest.params), INT64, INT64, POINTER, POINTER]
    function = ir.Function(module, ir.FunctionType(VOID, kinds), name)
    function.linkage = "internal"
    for attribute in ("noinline", "nounwind"):
        function.attributes.add(attribute)
    p = Printer(ir.IRBuilder(function.append_basic_block("entry")))
    *pointers, begin, end, _, errors = function.args
    if prod(nest.rows):
        cells = Cells(p, nest.params, pointers, errors)
        _Printing(p, nest, _grid(nest)).units(cells, begin, end)
    p.b.ret_void()
    return function


def _by_rows(nest: Nest) -> bool:
    return nest.lanes == "rows" and bool(nest.rows) and not _is_chained(nest)


def _is_chained(nest: Nest) -> bool:
    """Whether a row may read what the row before it has written."""
    loads = (x for phase in nest.phases for x in phase.code if isinstance(x, Load))
    return nest.serial and any(nest.params[x.access.slot].written for x in loads)


def _grid(nest: Nest) -> Grid:
    cells = max(prod(nest.columns), 1)
    grain = prod(nest.rows) * cells if nest.serial else GRAIN
    if not _by_rows(nest):
        return Grid(prod(nest.rows), 1, max(grain // cells, 1), 1)
    outer, length = prod(nest.rows[:-1]), nest.rows[-1]
    many = max(min(_side_by_side(nest), -(-length // WIDTH)), 1)
    step = many * WIDTH
    strip = -(-max(grain // cells, 1) // step) * step
    rows = max(grain // max(cells * length, 1), 1) if strip >= length else 1
    return Grid(outer, length, rows, strip, many)


def _side_by_side(nest: Nest) -> int:
    """Vectors in one turn of a fold: memory is read in long pieces; accumulators in registers."""
    effort = sum(stages.effort(phase.code) for phase in nest.phases)
    sums = sum(isinstance(x, Fold) for phase in nest.phases for x in phase.code)
    if not nest.columns or effort > 24:
        return 1
    if effort <= 3:
        return 8 if nest.rows[-1] >= 512 else 4
    few = target().instructions != "avx512" and sums > 1
    return 2 if effort > 12 or few else 4


@dataclass(frozen=True)
class Place:
    """A point of the loops: its indices, what is known there, and how many lanes are in use."""

    cells: Cells
    registers: Registers
    indices: tuple[ir.Value, ...]
    active: int = WIDTH

    def inside(self, at: dict[int, ir.Value], code: Sequence[Statement]) -> Place:
        """A point in inner loops, where these axes have an index; code: what will run there."""
        indices = tuple(at.get(a, i) for a, i in enumerate(self.indices))
        cells = self.cells.placed(code, indices, at, self.registers)
        return Place(cells, dict(self.registers), indices, self.active)

    def run(self, code: Sequence[Statement], lanes: int | None) -> None:
        """Print code here."""
        self.cells.run(code, self.registers, self.indices, lanes, self.active)

    def beside(self, vectors: int, active: int = WIDTH) -> Place:
        """The point so many vectors further along the axis of lanes."""
        cells = self.cells.shifted(vectors * WIDTH)
        return Place(cells, dict(self.registers), self.indices, active)


class _Printing:
    """Prints the loops of one nest."""

    def __init__(self, p: Printer, nest: Nest, grid: Grid) -> None:
        self.p, self.nest, self.grid = p, nest, grid
        self.by_rows = _by_rows(nest)
        self.first = len(nest.rows)  # the first column axis
        self.schedule: Schedule = schedule(nest, self.by_rows)

    # -- rows -----------------------------------------------------------------------------------

    def units(self, cells: Cells, begin: ir.Value, end: ir.Value) -> None:
        """The rows of the units from `begin` to `end`."""
        axes = len(self.nest.rows) + len(self.nest.columns)
        place = Place(cells, {}, (index(0),) * axes)
        place.run(self.schedule.entry, None)
        grid, b = self.grid, self.p.b
        if grid.strips == 1:
            start, stop = (b.mul(x, index(grid.rows)) for x in (begin, end))
            stop = self._least(stop, grid.outer)
            self.p.loop(start, stop, 1, lambda r: self._outer_row(place, r, index(0), index(1)))
        elif grid.outer == 1:
            self._outer_row(place, index(0), begin, end)
        else:
            self.p.loop(begin, end, 1, lambda u: self._strip(place, u))

    def _strip(self, place: Place, unit: ir.Value) -> None:
        b, strips = self.p.b, index(self.grid.strips)
        strip = b.urem(unit, strips)
        self._outer_row(place, b.udiv(unit, strips), strip, b.add(strip, index(1)))

    def _outer_row(self, place: Place, row: ir.Value, begin: ir.Value, end: ir.Value) -> None:
        """The strips from `begin` to `end` of one outer row (or, by columns, the row)."""
        axes = range(self.first - 1 if self.by_rows else self.first)
        at = self._split(row, axes)
        outer, inner = self.schedule.outer, self.schedule.statements
        place = place.inside(at, [*outer, *inner])
        place.run(outer, None)
        if self.by_rows:
            self._vectors_of_rows(place, begin, end)
        else:
            self._row([place])

    def _vectors_of_rows(self, place: Place, begin: ir.Value, end: ir.Value) -> None:
        grid, b = self.grid, self.p.b
        step = grid.many * WIDTH
        whole = grid.length // step * step
        start, stop = index(0), index(whole)
        if grid.strips > 1:
            start = b.mul(begin, index(grid.strip))
            stop = self._least(b.mul(end, index(grid.strip)), whole)
        if whole:
            self.p.loop(start, stop, step, lambda i: self._side_by_side(place, i, step))
        if whole == grid.length:
            return

        def rest() -> None:
            self._side_by_side(place, index(whole), grid.length - whole)

        if grid.strips > 1:
            self.p.when(b.icmp_signed("==", end, index(grid.strips)), rest)
        else:
            rest()

    def _side_by_side(self, place: Place, first: ir.Value, entries: int) -> None:
        """Rows from `first` on, a vector of them at a time."""
        place = place.inside({self.first - 1: first}, self.schedule.statements)
        actives = [min(entries - k, WIDTH) for k in range(0, entries, WIDTH)]
        self._row([place.beside(k, active) for k, active in enumerate(actives)])

    def _split(self, row: ir.Value, axes: range) -> dict[int, ir.Value]:
        """The indices of these axes, from one that counts through all of them."""
        at: dict[int, ir.Value] = {}
        for axis in reversed(axes):
            if axis == 0:
                at[axis] = row
            else:
                size = index(self.nest.rows[axis])
                at[axis], row = self.p.b.urem(row, size), self.p.b.udiv(row, size)
        return at

    def _least(self, x: ir.Value, limit: int) -> ir.Value:
        return self.p.intrinsic("smin", x, index(limit))

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

    def _row(self, places: Sequence[Place]) -> None:
        """All phases of a row, or of vectors of rows side by side."""
        for stage in self.schedule.stages:
            if not stage.cells:
                for place in places:
                    place.run(stage.innermost, self.row_lanes)
            elif prod(self.nest.columns):
                self._columns(stage, places)
            else:
                for place in places:
                    for fold in stage.folds:
                        place.registers[fold.target] = self.p.constant(fold.first, fold.dtype)

    def _columns(self, stage: Stage, places: Sequence[Place]) -> None:
        """A cell phase: all columns."""
        turn = _Columns(self.p, self.nest, stage, self.by_rows, self.lanes, self.row_lanes)
        totals = turn.axis(0, places, turn.nothing(len(places)))
        for k, place in enumerate(places):
            for fold, total in zip(stage.folds, totals[k * len(stage.folds) :], strict=False):
                if not self.by_rows and self.lanes is not None:
                    total = folds.across(self.p, fold, total)
                place.registers[fold.target] = folds.result(self.p, fold, total)


@dataclass(frozen=True)
class _Columns:
    """Prints the loops over columns of one stage; totals: a value per place and fold."""

    p: Printer
    nest: Nest
    stage: Stage
    by_rows: bool
    lanes: int | None
    row_lanes: int | None

    def nothing(self, places: int = 1) -> list[ir.Value]:
        """What folds begin with."""
        width = 1 if self.lanes is None else WIDTH
        return [folds.identity(self.p, fold, width) for fold in self.stage.folds] * places

    def combined(self, xs: Sequence[ir.Value], ys: Sequence[ir.Value]) -> list[ir.Value]:
        """Totals of both."""
        kinds = self.stage.folds * (len(xs) // max(len(self.stage.folds), 1))
        return [folds.combined(self.p, f, x, y) for f, x, y in zip(kinds, xs, ys, strict=True)]

    def axis(self, k: int, places: Sequence[Place], totals: Sequence[ir.Value]) -> list[ir.Value]:
        """Column axis k and all inside of it: the totals, with what these cells add."""
        if k == len(self.nest.columns):
            return self.cell(places, totals)
        for place in places:
            place.run(self.stage.code[k], self.row_lanes)
        n, last = self.nest.columns[k], k == len(self.nest.columns) - 1
        if last and not self.by_rows:
            return self.vectors(places[0], totals)

        def turn(i: ir.Value, *carried: ir.Value) -> list[ir.Value]:
            return self.axis(k + 1, self._inside(k, i, places), carried)

        if k == 0 or not totals:
            return self.blocks(n, 1, 1, turn, totals)
        return self.combined(totals, self.blocks(n, 1, 1, turn, self.nothing(len(places))))

    def _inside(self, k: int, i: ir.Value, places: Sequence[Place]) -> list[Place]:
        code = [x for inner in self.stage.code[k + 1 :] for x in inner]
        return [place.inside({len(self.nest.rows) + k: i}, code) for place in places]

    def cell(self, places: Sequence[Place], totals: Sequence[ir.Value]) -> list[ir.Value]:
        """One cell of each place."""
        made: list[ir.Value] = []
        for place in places:
            place.run(self.stage.innermost, self.lanes)
            made += [self._source(fold, place) for fold in self.stage.folds]
        return self.combined(totals, made)

    def _source(self, fold: Fold, place: Place) -> ir.Value:
        x: Lanes = place.registers[fold.source]
        if self.lanes is None:
            return x.value
        wide = self.p.widened(x, WIDTH)
        return wide if self.by_rows else folds.masked(self.p, fold, wide, place.active)

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
            nothing = self.nothing(len(totals) // len(self.stage.folds))
            return self.combined(carried, self.p.loop(i, end, step, turn, nothing))

        return self.p.loop(0, n, block.constant, one, totals)

    # -- lanes along the last column axis -------------------------------------------------------

    def vectors(self, place: Place, totals: Sequence[ir.Value]) -> list[ir.Value]:
        """The last column axis, a vector at a time; accumulators take turns."""
        n = self.nest.columns[-1]
        turns, many = n // WIDTH, ACCUMULATORS if n >= ACCUMULATORS * WIDTH else 1
        unroll = self._unroll(turns)
        main, found = turns // many * many, self.nothing(many)
        if not found or turns // many <= 2 * BLOCK:
            main = turns // unroll * unroll

        def turn(count: int) -> Callable[..., list[ir.Value]]:
            return lambda i, *carried: self._turns(place, i, count, carried)

        if main:
            chains = many * WIDTH
            found = self.blocks(main * WIDTH, unroll * WIDTH, chains, turn(unroll), found)
        if main < turns:
            found = self.p.loop(main * WIDTH, turns * WIDTH, WIDTH, turn(1), found)
        if n % WIDTH:
            found = self._turns(place, index(turns * WIDTH), 1, found, n % WIDTH)
        return self._together(found, -(-n // WIDTH), many, totals)

    def _unroll(self, turns: int) -> int:
        """Vectors in one turn of the loop; the order of additions is the same for any."""
        effort = stages.effort(self.stage.innermost)
        most = 4 if effort <= 2 else 2 if effort <= 10 else 1
        return most if turns >= most else 1

    def _turns(
        self, place: Place, first: ir.Value, count: int, carried: Sequence[ir.Value],
        active: int = WIDTH,
    ) -> list[ir.Value]:  # fmt: skip
        """Some vectors, one after the other; the first accumulator gets what the first one adds."""
        place = self._inside(len(self.nest.columns) - 1, first, [place])[0]
        found, n = list(carried), len(self.stage.folds)
        for k in range(count):
            found = found[n:] + self.cell([place.beside(k, active)], found[:n])
        return found

    def _together(
        self, found: list[ir.Value], turns: int, many: int, totals: Sequence[ir.Value]
    ) -> list[ir.Value]:
        """All accumulators, in the order of the vectors that they began with, and the totals."""
        n, made = len(self.stage.folds), list[ir.Value]()
        for k, fold in enumerate(self.stage.folds):
            order = [found[(j - turns) % many * n + k] for j in range(many)]
            made.append(folds.together(self.p, fold, order))
        return self.combined(totals, made)


__all__ = ["print_nest", "scratch_bytes", "units"]
