"""Sums of halves and bools in native code: made in wider numbers, and rounded once, bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from backends.native.test_rows import NATIVE, hosted

from graphc.ir.builder import Builder
from graphc.ir.graph import Variable
from graphc.ir.orders import Order
from graphc.ir.types import BF16, BOOL, F16, F32, I32, U8, DType, TensorType
from graphc.lowering.schedule.schedule import schedule
from graphc.ops.source import Input, ReadVariable
from graphc.runtime.backends.reference import BACKEND as REFERENCE
from graphc.testing.running import run

Array = np.ndarray[Any, np.dtype[Any]]
DTYPES = (F16, BF16, BOOL, F32, I32, U8)


def values(shape: tuple[int, ...], dtype: DType, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    x = rng.random(shape) < 0.3 if dtype == BOOL else rng.standard_normal(shape) * 3
    return x.astype(dtype.numpy) if dtype != U8 else rng.integers(0, 200, shape, np.uint8)


def check(f: Builder, batch: dict[str, Array], variables: dict[str, Array] | None = None) -> None:
    """All in native code, and the same as the ops."""
    program = schedule(f.build())
    assert hosted(program) == []
    wanted, found = (run(program, b, batch, variables, steps=2) for b in (REFERENCE, NATIVE))
    for name, x in wanted.items():
        assert found[name].tobytes() == x.tobytes(), name


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "windows", [(9, 3, 1, 1), (9, 2, 2, 1), (9, 3, 2, 2), (40, 5, 3, 1), (4, 1, 1, 1)]
)
def test_windows_are_folded(windows: tuple[int, int, int, int], dtype: DType) -> None:
    length, size, stride, dilation = windows
    count = (length - (size - 1) * dilation - 1) // stride + 1
    f, x = Builder("folded"), values((3, count, 17, size), dtype, length)
    given = f.add(Input("x"), type=TensorType(x.shape, dtype), name="x")
    y = f.fold_windows(given, at=(1,), lengths=(length,), strides=(stride,), dilations=(dilation,))
    f.outputs["y"] = y.name
    check(f, {"x": x})


@pytest.mark.one_in(2)
@pytest.mark.parametrize("order", [Order.ACCUMULATE, Order.TREE], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(9,), (9, 5), (40, 3, 2), (4, 9, 33)])
def test_rows_are_joined(shape: tuple[int, ...], dtype: DType, order: Order) -> None:
    lead = shape[:2] if len(shape) > 2 and shape[0] == 4 else shape[:1]
    f, rows = Builder("joined"), values(shape, dtype, len(shape))
    ids = np.random.default_rng(0).integers(0, 6, lead).astype(np.int32)
    at = f.add(Input("ids"), type=TensorType(ids.shape, I32), name="ids")
    given = f.add(Input("rows"), type=TensorType(rows.shape, dtype), name="rows")
    f.outputs["y"] = f.row_sum(f.row_ids(at), given, size=6, order=order).name
    check(f, {"ids": ids, "rows": rows})


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("shape", [(9,), (9, 5), (40, 3, 2)])
def test_rows_are_added_to_a_table_of_bools(shape: tuple[int, ...], joined: bool) -> None:
    f, rows = Builder("added"), values(shape, BOOL, len(shape))
    table, ids = values((6, *shape[1:]), BOOL, 3), np.arange(shape[0], dtype=np.int32) ** 2 % 6
    at = f.add(Input("ids"), type=TensorType(ids.shape, I32), name="ids")
    given = f.add(Input("rows"), type=TensorType(rows.shape, BOOL), name="rows")
    f.variables["v"] = Variable("v", TensorType(table.shape, BOOL), "state")
    read = f.add(ReadVariable("v"), type=TensorType(table.shape, BOOL))
    ids_of = f.row_ids(at)
    added = f.row_sum(ids_of, given, size=6, order=Order.ACCUMULATE) if joined else given
    f.updates["v"] = f.row_add(read, ids_of, added).name
    check(f, {"ids": ids, "rows": rows}, {"v": table})


def test_a_replica_reads_its_own_entry() -> None:
    f, x = Builder("own"), np.array([7], np.int32)
    given = f.add(Input("x"), type=TensorType((1,), I32), name="x")
    f.outputs["y"] = f.own_entry(given).name
    check(f, {"x": x})
