"""Folds that compute strips of rows for one column after the other, against those that take a few
vectors through all columns."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from backends.native.harness import compile_kernel
from graphc_numpy.native.loops import wide_rows

from graphc.ir.types import BF16, F32, F64, I32, DType
from graphc.lowering.kernel.code import (
    Access,
    Apply,
    Load,
    Nest,
    Parameter,
    Phase,
    RowReduction,
    Store,
)

Array = np.ndarray[Any, np.dtype[Any]]
# rows, columns, dtype: strips of equal and of other lengths, blocks of additions, lanes that are
# no whole vector, several axes of columns
SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...], DType], ...] = (
    ((20, 256), (70,), F32),
    ((17, 250), (70,), F32),
    ((16, 160), (300,), F32),
    ((16, 128), (9, 13), F32),
    ((16, 128), (2, 280), F32),
    ((4, 5, 192), (50,), F64),
    ((16, 200), (90,), BF16),
    ((16, 131), (64,), I32),
)


def summed(rows: tuple[int, ...], columns: tuple[int, ...], dtype: DType) -> Nest:
    """Per row the sum and the largest of x * w, and x + w where x was; w is a value of the lane."""
    shape = (*rows[:-1], *columns, rows[-1])
    lows = [prod(shape[k + 1 :]) for k in range(len(shape))]
    outer = len(rows) - 1
    cell = (*lows[:outer], 1, *lows[outer : outer + len(columns)])
    row = (*(prod(rows[k + 1 :]) for k in range(len(rows))), *(0 for _ in columns))
    lane = (*(0 for _ in range(outer)), 1, *(0 for _ in columns))
    inside = (
        Load(1, Access(1, cell)),
        Apply(2, "mul", (1, 0), dtype),
        RowReduction(3, "sum", 2, dtype, 0),
        RowReduction(4, "max", 1, dtype, 0),
        Apply(5, "add", (1, 0), dtype),
        Store(Access(2, cell), 5),
    )
    return Nest(
        (
            Parameter(dtype), Parameter(dtype), Parameter(dtype, True), Parameter(dtype, True),
            Parameter(dtype, True),
        ),
        rows, columns,
        (
            Phase(False, (Load(0, Access(0, lane)),)),
            Phase(True, inside),
            Phase(False, (Store(Access(3, row), 3), Store(Access(4, row), 4))),
        ),
    )  # fmt: skip


def operands(nest: Nest) -> list[Array]:
    rng, dtype = np.random.default_rng(0), nest.params[0].dtype.numpy
    size, rows = prod(nest.rows) * prod(nest.columns), prod(nest.rows)
    x = (rng.normal(size=size) * 100).astype(dtype)
    w = rng.normal(size=nest.rows[-1]).astype(dtype)
    return [w, x, np.zeros(size, dtype), np.zeros(rows, dtype), np.zeros(rows, dtype)]


@pytest.mark.parametrize(
    ("rows", "columns", "dtype", "target"),
    [*((*s, None) for s in SHAPES), *((*SHAPES[1], t) for t in ("avx2", "baseline"))],
)
def test_strips_have_the_bits_of_single_vectors(
    rows: tuple[int, ...], columns: tuple[int, ...], dtype: DType, target: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    nest = summed(rows, columns, dtype)
    assert wide_rows.width(nest, 16)
    wide, narrow = operands(nest), operands(nest)
    made = compile_kernel(nest, target)
    half = made.units // 2
    made(wide, [range(half, made.units), range(half)])
    monkeypatch.setattr(wide_rows, "width", lambda nest, step: 0)
    compile_kernel(nest)(narrow)
    for x, y in zip(wide, narrow, strict=True):
        assert x.tobytes() == y.tobytes()


def test_only_plain_long_folds_are_done_in_strips() -> None:
    """What fits into a cache, or has one row for all threads, is not; nor is what depends on
    memory that it changes."""
    assert wide_rows.width(summed((16, 256), (100,), F32), 16)
    assert not wide_rows.width(summed((16, 64), (8,), F32), 16), "it fits"
    assert not wide_rows.width(summed((1, 64), (1000,), F32), 16), "threads share its vectors"
    nest = summed((16, 256), (100,), F32)
    again = Nest((Parameter(F32, True), *nest.params[1:]), nest.rows, nest.columns, nest.phases)
    assert not wide_rows.width(again, 16), "the value of a row may change"


def test_a_strip_holds_equal_parts_of_a_row() -> None:
    nest = summed((64, 640), (100,), F32)
    assert wide_rows.width(nest, 16) == 320
