"""Recurrences: sums of products become one, joined parts lie in one place, weights are turned once."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from lowering.compiled import check, kernels_of, program_of

from graphc import nn
from graphc.lowering.kernel.code import Gemm, Nest
from graphc.lowering.program.program import Program


def gated(x: Any, wx: Any, wh: Any) -> Any:
    """Gates that are split, and a product per turn."""
    given = x @ wx
    h = c = np.zeros((x.shape[0], wh.shape[0]), x.dtype)
    for t in range(x.shape[1]):
        i, f, o = np.split(given[:, t] + h @ wh, 3, axis=-1)
        c = nn.sigmoid(f) * c + nn.sigmoid(i)
        h = nn.sigmoid(o) * np.tanh(c)
    return h


def plain(x: Any, wx: Any, wh: Any) -> Any:
    """What the products read lies in no common place."""
    h = np.tanh(x[:, 0] @ wx)
    for t in range(1, x.shape[1]):
        h = np.tanh(x[:, t] @ wx + h @ wh) * 0.5
    return h


def turned(x: Any, wx: Any, wh: Any) -> Any:
    """The weight's transpose, and states with the batch behind."""
    h = np.tanh(wx.T @ x[:, 0].T)
    for t in range(1, x.shape[1]):
        h = np.tanh(wx.T @ x[:, t].T + wh.T @ h)
    return h


KINDS = {"gated": (gated, 3), "plain": (plain, 1), "turned": (turned, 1)}


def compiled(
    kind: str, turns: int, batch: int, width: int, dtype: Any
) -> tuple[Program, dict[str, Any], dict[str, Any]]:
    made, gates = KINDS[kind]
    r = np.random.default_rng(turns * 100 + batch)
    params = {
        "wx": r.normal(size=(5, gates * width)).astype(dtype),
        "wh": (r.normal(size=(width, gates * width)) * 0.3).astype(dtype),
    }
    data = {"x": r.normal(size=(batch, turns, 5)).astype(dtype)}

    def loss(p: Any, b: Any) -> Any:
        return np.mean(made(b["x"], p["wx"], p["wh"]) ** 2)

    return program_of(loss, params, data), params, data


def products(program: Program) -> list[Gemm]:
    return [k for k in kernels_of(program) if isinstance(k, Gemm)]


def summed(program: Program) -> list[int]:
    """How many entries each product sums."""
    return [prod(k.inner) for k in products(program)]


CASES = [
    (2, 1, 19, np.float32), (5, 1, 8, np.float64), (5, 4, 19, np.float32), (6, 3, 1, np.float32)
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_recurrence_is_what_its_ops_give(kind: str, case: Any) -> None:
    check(*compiled(kind, *case))


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_of_a_weight_of_every_turn_is_one_product(kind: str) -> None:
    program, _, _ = compiled(kind, 9, 4, 16, np.float32)
    assert {8 * 4, 9 * 4} & {*summed(program)}, summed(program)


def test_few_products_are_summed_as_they_are() -> None:
    program, _, _ = compiled("plain", 4, 4, 16, np.float32)
    assert 3 * 4 not in summed(program)


def test_parts_of_a_joined_part_are_written_where_the_whole_lies() -> None:
    program, _, _ = compiled("gated", 9, 4, 16, np.float32)
    nests = [k for k in kernels_of(program) if isinstance(k, Nest)]
    copies = [k for k in nests if not k.columns and len(k.phases[0].code) == 2]
    assert len(copies) <= 2, copies  # of a state, and of a weight


def test_a_weight_that_every_turn_reads_across_is_turned_once() -> None:
    program, _, _ = compiled("gated", 9, 4, 16, np.float32)
    backward = [k for k in products(program) if k.rows == (4,) and k.inner == (48,)]
    assert len(backward) >= 7 and all(k.right.cols == (1,) for k in backward)
