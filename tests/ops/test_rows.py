"""Rows of a table: joined by index, in a fixed order, and added in place."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.ir.op import Shard
from graphc.ir.orders import Order
from graphc.ops.rows import RowAdd, RowSum
from graphc.support.errors import GraphcError

IDS = np.array([[3, 1], [3, 0], [1, 3]], np.int32)
ROWS = np.arange(1.0, 13.0, dtype=np.float32).reshape(3, 2, 2)


@pytest.mark.parametrize("order", [Order.ACCUMULATE, Order.TREE])
def test_rows_of_equal_indices_are_added_at_the_first(order: Order) -> None:
    y = RowSum(4, order).run(IDS, ROWS)
    expected = [[[17, 20], [12, 14]], [[0, 0], [7, 8]], [[0, 0], [0, 0]]]
    assert y.tolist() == expected


@pytest.mark.parametrize("order", [Order.ACCUMULATE, Order.TREE])
def test_the_order_of_additions_is_that_of_the_rows(order: Order) -> None:
    rng = np.random.default_rng(0)
    ids, rows = rng.integers(0, 5, 200), rng.normal(size=(200, 3)).astype(np.float32)
    y = RowSum(5, order).run(ids, rows)
    for index in range(5):
        at = np.flatnonzero(ids == index)
        assert y[at[0]].tolist() == (_tree if order is Order.TREE else _running)(rows[at]).tolist()
        assert not y[at[1:]].any()


def _running(rows: np.ndarray) -> np.ndarray:
    total = rows[0]
    for row in rows[1:]:
        total = total + row
    return total


def _tree(rows: np.ndarray) -> np.ndarray:
    level = list(rows)
    while len(level) > 1:
        pairs = [a + b for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[len(level) - len(level) % 2 :]
    return level[0]


def test_halves_are_summed_in_single_precision() -> None:
    rows = np.array([[2048.0], [1.0], [1.0]], np.float16)
    assert RowSum(1).run(np.zeros(3, np.int32), rows).tolist() == [[2050.0], [0], [0]]
    table = np.array([[2048.0]], np.float16)
    added = RowAdd().run(table, np.zeros(1, np.int32), np.array([[1.5]], np.float32))
    assert added.dtype == np.float16 and added.tolist() == [[2050.0]]


def test_rows_are_added_one_after_the_other() -> None:
    table = np.zeros((4, 2), np.float32)
    y = RowAdd().run(table, IDS, ROWS)
    assert y.tolist() == [[7, 8], [12, 14], [0, 0], [17, 20]]
    assert not table.any()


def test_a_part_of_a_table_takes_its_own_rows() -> None:
    part = np.zeros((3, 2), np.float32)
    y = RowAdd().run_shard(Shard((3, 2), (2, 0), (2, 2), (4, 2)), part, IDS, ROWS)
    assert y.tolist() == [[0, 0], [17, 20], [0, 0]]


@pytest.mark.parametrize("index", [-1, 4])
def test_an_index_outside_the_table_is_an_error(index: int) -> None:
    ids = np.array([index], np.int32)
    with pytest.raises(GraphcError, match=f"index {index}.* is out of range for a dim of 4"):
        RowSum(4).run(ids, np.ones((1, 2), np.float32))


@pytest.mark.parametrize(
    ("dtype", "message"), [("f64", "rows of f64, not f32"), ("i32", "rows of i32, not f32")]
)
def test_rows_have_the_dtype_of_sums(dtype: str, message: str) -> None:
    from graphc.ir.types import parse_types

    with pytest.raises(GraphcError, match=message):
        RowAdd().infer(*parse_types(f"f32[4,2], i32[3], {dtype}[3,2]"))
    with pytest.raises(GraphcError, match="indices are integers, not f32"):
        RowSum(4).infer(*parse_types("f32[3], f32[3,2]"))
    with pytest.raises(GraphcError, match=r"indices \(3,\) and rows \(4, 2\)"):
        RowAdd().infer(*parse_types("f32[4,2], i32[3], f32[4,2]"))
