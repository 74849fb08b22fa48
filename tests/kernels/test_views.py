"""A product is narrowed to what views of its result read, and never widened."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest
from kernels.compiled import check, program_of
from kernels.reach import check_reach

from graphc import nn
from graphc.kernels.code import Product
from graphc.kernels.lower import lower
from graphc.kernels.views import box, sight
from graphc.program import Buffer, Program
from graphc.types import F32

Loss = Callable[[Any, Any], Any]


def of(*shape: int) -> Any:
    return np.random.default_rng(shape).normal(size=shape)


def attend(p: Any, b: Any) -> Any:
    """One query to many keys."""
    q, k, v = b["x"] @ p["q"], b["y"] @ p["k"], b["y"] @ p["v"]
    scores = nn.softmax(np.einsum("bqd,bkd->bqk", q, k))
    return np.mean(np.einsum("bqk,bkd->bqd", scores, v)[:, 0] ** 2)


def seen_as(change: Callable[[Any], Any]) -> Loss:
    return lambda p, b: np.mean(np.square(change(b["x"] @ p["w"])))


def convolved(groups: int) -> Loss:
    return lambda p, b: np.mean(nn.conv2d(b["x"], p["w"], groups=groups) ** 2)


ONE_COLUMN = {"w": of(16, 1)}, {"x": of(40, 16)}
ONE_ROW = {"w": of(16, 4)}, {"x": of(30, 1, 16)}
SQUARE = {"w": of(5, 6)}, {"x": of(4, 5)}
IMAGE = of(3, 7, 8, 6)
CASES: dict[str, tuple[Loss, Any, Any]] = {
    "a row of one": (seen_as(lambda y: y[:, 0]), *ONE_ROW),
    "a column of one": (seen_as(lambda y: y[:, 0]), *ONE_COLUMN),
    "squeeze": (seen_as(lambda y: y.squeeze(-1)), *ONE_COLUMN),
    "reshape": (seen_as(lambda y: y.reshape(-1)), *ONE_COLUMN),
    "flipped": (seen_as(lambda y: y[::-1, 0]), *ONE_COLUMN),
    "a batch of one": (seen_as(lambda y: y[0]), {"w": of(16, 4)}, {"x": of(1, 30, 16)}),
    "a run of entries": (seen_as(lambda y: y.reshape(-1)[3:9]), *SQUARE),
    "a step": (seen_as(lambda y: y[1::2, ::3]), *SQUARE),
    "a view of a view": (seen_as(lambda y: y.T[1:, None, 2:].reshape(5, -1)), *SQUARE),
    "a dim in two": (seen_as(lambda y: y.reshape(4, 3, 2)[:, 1:, :1]), *SQUARE),
    "two parts": (seen_as(lambda y: y[1:, :2] * y[:-1, 4:]), *SQUARE),
    "one query": (
        attend, {"q": of(8, 8), "k": of(8, 8) * 0.5, "v": of(8, 8)},
        {"x": of(9, 1, 8), "y": of(9, 7, 8)},
    ),
    "depthwise": (convolved(6), {"w": of(3, 3, 1, 6)}, {"x": IMAGE}),
    "grouped": (convolved(3), {"w": of(3, 3, 2, 9)}, {"x": IMAGE}),
    "grouped, one tap": (convolved(2), {"w": of(1, 1, 3, 4)}, {"x": IMAGE}),
}  # fmt: skip


def program(name: str) -> tuple[Program, Any, Any]:
    loss, params, batch = CASES[name]
    return program_of(loss, params, batch), params, batch


@pytest.mark.parametrize("name", CASES)
def test_views_of_products_are_what_their_ops_give(name: str) -> None:
    check(*program(name))


@pytest.mark.parametrize("name", CASES)
def test_a_dim_of_length_one_is_not_widened(name: str) -> None:
    made, params, batch = program(name)
    products = [b.kernel for b in check_reach(made) if isinstance(b.kernel, Product)]
    sizes = [prod((*k.batch, *k.rows, *k.inner, *k.cols)) for k in products]
    results = [b for b in made.buffers if b.kind == "arena"]
    assert lower(made).arena <= 2 * sum(max(64, b.bytes) for b in results)
    given = max(x.size for x in (*params.values(), *batch.values()))
    assert max(sizes) <= 9 * 3 * given, sizes  # each input once for each tap and its channels


def a_view(shape: tuple[int, ...], strides: tuple[int, ...], start: int = 0) -> Buffer:
    return Buffer(1, "view", shape, F32, "view", 4 * start, 0, strides)


def test_a_view_that_goes_on_from_one_dim_into_the_next_is_no_part_of_them() -> None:
    assert sight(a_view((4,), (1,), 3), (4, 6)) is None
    assert sight(a_view((3,), (1,), 3), (4, 6)) is not None
    assert sight(a_view((4,), (7,)), (4, 6)) is None  # a diagonal
    assert sight(a_view((24,), (1,)), (4, 6)) is None


def test_a_view_along_one_dim_twice_reads_all_that_both_reach() -> None:
    base = Buffer(0, "base", (10, 1), F32)
    windows = a_view((4, 3), (2, 1), 1)
    assert box(windows, base) == [(1, 10), (0, 1)]
