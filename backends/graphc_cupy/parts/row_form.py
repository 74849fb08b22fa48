"""Nests that add up their columns in one phase: what launches in parts have in common."""

from __future__ import annotations

from graphc.ir.types import F32, F64
from graphc.lowering.kernel.axes import LoopAxis, axes_of
from graphc.lowering.kernel.code import (
    Apply,
    AxisIndex,
    LinkedSum,
    Load,
    Nest,
    Number,
    Parameter,
    RowReduction,
    Statement,
    Store,
    registers,
)
from graphc.lowering.kernel.random_numbers import RandomNumber
from graphc.support.dataclass import dataclass

BEFORE = (Load, Number, AxisIndex, Apply)  # what may be computed of a row before its columns


@dataclass(frozen=True)
class SummedRows:
    """A nest whose phase number `along` is the only one of the columns, where `folds` are made."""

    nest: Nest
    along: int
    folds: tuple[RowReduction, ...]

    @property
    def columns(self) -> tuple[Nest, list[LoopAxis], list[LoopAxis]]:
        """The nest up to its columns; its axes: of rows, and of columns."""
        nest = self.nest
        first = Nest(
            nest.params, nest.rows, nest.columns, nest.phases[: self.along + 1], nest.lanes
        )
        axes = axes_of(first)
        return first, axes[: len(nest.rows)], axes[len(nest.rows) :]

    @property
    def free(self) -> int:
        """A register behind all that are used."""
        code = [x for phase in self.nest.phases for x in phase.code]
        return max(r for x in code for r in (*registers(x), *_target(x))) + 1

    def params(self, written: bool) -> tuple[Parameter, ...]:
        """Those of the nest, and one for the terms of each sum."""
        return (*self.nest.params, *(Parameter(x.dtype, written) for x in self.folds))


def summed_rows(nest: Nest) -> SummedRows | None:
    """The form of a nest whose columns may be shared; None if it has another one.

    Of the columns, no code uses the first index. What is computed of a row before them is computed
    by many threads, and is not needed behind them.
    """
    along = [k for k, phase in enumerate(nest.phases) if phase.per_column]
    code = [x for phase in nest.phases for x in phase.code]
    if nest.serial or len(along) != 1 or any(isinstance(x, LinkedSum) for x in code):
        return None
    here = along[0]
    before = [x for phase in nest.phases[:here] for x in phase.code]
    later = [x for phase in nest.phases[here + 1 :] for x in phase.code]
    folds = tuple(x for x in nest.phases[here].code if isinstance(x, RowReduction))
    if not folds or not all(x.kind == "sum" and x.dtype in (F32, F64) for x in folds):
        return None
    if not all(isinstance(x, BEFORE) for x in before) or _needs(later, before):
        return None
    if AxisIndex in map(type, code) and _counted(nest):
        return None
    return SummedRows(nest, here, folds)


def _counted(nest: Nest) -> bool:
    return any(x.counted for x in axes_of(nest) if x.number == len(nest.rows))


def _needs(later: list[Statement], before: list[Statement]) -> bool:
    """Whether code needs what was computed before; or draws random numbers."""
    used = {r for x in later for r in registers(x)}
    drawn = any(isinstance(x, RandomNumber) for x in later)
    return drawn or bool(used & {r for x in before for r in _target(x)})


def _target(x: Statement) -> tuple[int, ...]:
    """The register that a statement sets."""
    return () if isinstance(x, Store) else (x.target,)


__all__ = ["SummedRows", "summed_rows"]
