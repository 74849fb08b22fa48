"""Few long rows: the columns of each are shared by many blocks of threads.

The CPU adds up a long row in vectors of 16 lanes, four sums by turns, and each of these 64 sums in
blocks of 128 terms or more (`graphc_llvm.folds`). So a first launch goes through the columns, a
row of it for each block of each of the 64 sums:

    fold 64 of 65536 --> fold 64x8x64 of 128, fold 64 of 64

A second one adds up the blocks of each sum, makes the tree over the sums, and goes on with the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import count
from math import isqrt, prod

from graphc_llvm.folds import ACCUMULATORS, BLOCK
from graphc_llvm.vectors import WIDTH

from graphc.ir.types import F32, F64, DType
from graphc.lowering.kernel.axes import axes_of, with_axes
from graphc.lowering.kernel.code import (
    Access,
    Apply,
    AxisIndex,
    LinkedSum,
    Load,
    Nest,
    Number,
    Parameter,
    Phase,
    RowReduction,
    Statement,
    Store,
    registers,
)
from graphc.lowering.program.strides import MemoryLayout
from graphc_cupy.parts.launch_parts import LaunchPart, LaunchParts, in_own_memory

SUMS = ACCUMULATORS * WIDTH  # that take turns along a row
FEW = 1024  # rows: more of them occupy a GPU
BEFORE = (Load, Number, AxisIndex, Apply)  # what may be computed of a row before its columns
LEAST = 32  # terms of each of the sums: so many a thread adds up by itself
MOST = 64  # blocks of a sum, whose code stands one after the other


@lru_cache(maxsize=1024)
def parts_of(nest: Nest) -> LaunchParts | None:
    """The parts of a nest; None if one launch runs it."""
    folds = _folds(nest)
    if not folds or prod(nest.rows) > FEW or not prod(nest.rows):
        return None
    n = nest.columns[0]
    if n % SUMS or n // SUMS < LEAST:
        return None
    terms = n // SUMS
    length = terms if terms <= 2 * BLOCK else max(BLOCK, isqrt(terms))
    if terms % length or terms // length > MOST:
        return None
    shape = (*nest.rows, terms // length, SUMS)
    places, own = in_own_memory([prod(shape) * x.dtype.bytes for x in folds])
    given = [*((slot, 0) for slot in range(len(nest.params))), *places]
    kernels = _terms(nest, folds, shape, length), _added(nest, folds, shape)
    return LaunchParts(tuple(LaunchPart(x, tuple(given)) for x in kernels), own)


def _folds(nest: Nest) -> list[RowReduction]:
    """The sums of a nest that adds up its only columns, in vectors along them, in one phase."""
    if nest.serial or len(nest.columns) != 1 or (nest.lanes != "columns" and nest.rows):
        return []
    along = [k for k, phase in enumerate(nest.phases) if phase.per_column]
    if len(along) != 1 or not _goes_on(nest, along[0]):
        return []
    folds = [x for x in nest.phases[along[0]].code if isinstance(x, RowReduction)]
    summed = all(x.kind == "sum" and x.dtype in (F32, F64) for x in folds)
    counted = any(a.counted for a in axes_of(nest) if a.group == "columns")
    return [] if not summed or counted or _has_links(nest) else folds


def _goes_on(nest: Nest, along: int) -> bool:
    """Whether what is computed of a row, before its columns, may be computed by many threads, and
    is not needed behind them."""
    before = [x for phase in nest.phases[:along] for x in phase.code]
    later = {r for phase in nest.phases[along + 1 :] for x in phase.code for r in registers(x)}
    plain = all(isinstance(x, BEFORE) for x in before)
    return plain and not later & {r for x in before for r in _target(x)}


def _along(nest: Nest) -> int:
    """The phase of the columns."""
    return next(k for k, phase in enumerate(nest.phases) if phase.per_column)


def _has_links(nest: Nest) -> bool:
    return any(isinstance(x, LinkedSum) for phase in nest.phases for x in phase.code)


def _params(nest: Nest, folds: Sequence[RowReduction], written: bool) -> tuple[Parameter, ...]:
    return (*nest.params, *(Parameter(x.dtype, written) for x in folds))


def _terms(
    nest: Nest, folds: Sequence[RowReduction], shape: tuple[int, ...], length: int
) -> Nest:  # fmt: skip
    """What is done in each column, and the blocks of the sums."""
    first = replace(nest, phases=nest.phases[: _along(nest) + 1])
    *rows, columns = axes_of(first)
    block, term, sum_ = (
        replace(columns, size=size, strides=tuple(s * step for s in columns.strides))
        for size, step in ((shape[-2], length * SUMS), (length, SUMS), (SUMS, 1))
    )
    outer = [replace(x, group="rows") for x in (block, sum_)]
    made = with_axes(first, [*rows, *outer, term])
    strides = (*MemoryLayout.dense(shape).strides, 0)
    stores = tuple(
        Store(Access(len(nest.params) + k, strides), x.target) for k, x in enumerate(folds)
    )
    phases = (*made.phases, Phase(False, stores))
    return replace(made, params=_params(nest, folds, True), phases=phases, lanes="rows")


def _added(nest: Nest, folds: Sequence[RowReduction], shape: tuple[int, ...]) -> Nest:
    """The sums of the blocks, their tree, and what is done with a row."""
    used = (r for phase in nest.phases for x in phase.code for r in (*registers(x), *_target(x)))
    numbers, code = count(max(used) + 1), list[Statement]()
    *of_rows, of_block, _ = MemoryLayout.dense(shape).strides
    for k, fold in enumerate(folds):
        total = -1
        for block in range(shape[-2]):
            here = next(numbers)
            at = Access(len(nest.params) + k, (*of_rows, 1), block * of_block)
            code.append(Load(here, at))
            total = here if block == 0 else _plus(code, next(numbers), (total, here), fold.dtype)
        code.append(replace(fold, source=total))
    return replace(
        nest, params=_params(nest, folds, False), columns=(SUMS,),
        phases=(Phase(True, tuple(code)), *nest.phases[_along(nest) + 1 :]),
    )  # fmt: skip


def _plus(code: list[Statement], target: int, both: tuple[int, int], dtype: DType) -> int:
    code.append(Apply(target, "add", both, dtype))
    return target


def _target(x: Statement) -> tuple[int, ...]:
    """The register that a statement sets."""
    return () if isinstance(x, Store) else (x.target,)


__all__ = ["parts_of"]
