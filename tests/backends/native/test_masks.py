"""Products of which a comparison of indices hides a part."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from backends.native.harness import run_kernel
from graphc_llvm import masked_tiles
from lowering import interpret

from graphc.ir.types import BOOL, F32, I32, I64
from graphc.lowering.kernel.code import (
    Access,
    Apply,
    AxisIndex,
    Gemm,
    Number,
    Parameter,
    Side,
    Statement,
    Store,
)

PARAMS = Parameter(F32), Parameter(F32), Parameter(F32, written=True)


def hidden(compare: str, far: int, m: int, n: int, k: int = 20, swapped: bool = False) -> Gemm:
    """`y[r, c] = sum * 2 where compare(r + far, 3 c), else -5`."""
    order = (6, 5) if swapped else (5, 6)
    code: tuple[Statement, ...] = (
        AxisIndex(1, 0), AxisIndex(2, 1), Number(3, far, I64), Apply(4, "add", (1, 3), I64),
        Apply(5, "cast", (4,), I32), Number(11, 3, I64), Apply(12, "mul", (2, 11), I64),
        Apply(6, "cast", (12,), I32), Apply(7, compare, order, BOOL), Number(8, -5.0, F32),
        Apply(9, "add", (0, 0), F32), Apply(10, "select", (7, 9, 8), F32),
        Store(Access(2, (n, 1)), 10),
    )  # fmt: skip
    left, right = Side(0, (), (k,), (1,), (0,)), Side(1, (), (0,), (n,), (1,))
    return Gemm(PARAMS, left, right, (), (m,), (k,), (n,), F32, code)


@pytest.mark.parametrize("compare", ["ge", "gt", "le", "lt"])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(("far", "m", "n"), [(0, 70, 50), (40, 33, 90), (-100, 120, 40), (0, 5, 1)])
def test_what_is_hidden_is_the_other_value(
    compare: str, swapped: bool, far: int, m: int, n: int
) -> None:
    product = hidden(compare, far, m, n, swapped=swapped)
    found = masked_tiles.visible_entries(product)
    assert found is not None
    rows_up = (compare in ("ge", "gt")) != swapped
    assert found.rises == {0: rows_up, 1: not rows_up}
    rng = np.random.default_rng(n)
    arrays: list[Any] = [rng.standard_normal(x).astype(np.float32) for x in (m * 20, 20 * n)]
    made, wanted = (np.zeros(m * n, np.float32) for _ in range(2))
    run_kernel(product, [*arrays, made])
    interpret.run(product, [*arrays, wanted])
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(made == -5, wanted == -5)


@pytest.mark.parametrize(
    "more",
    [
        (Store(Access(2, (50, 1)), 0),),  # a sum is seen elsewhere, too
        (Apply(13, "mul", (7, 0), F32), Store(Access(2, (50, 1)), 13)),
    ],
)
def test_a_sum_that_is_seen_elsewhere_is_made(more: tuple[Statement, ...]) -> None:
    product = hidden("ge", 0, 70, 50)
    assert masked_tiles.visible_entries(replace(product, code=(*product.code, *more))) is None


def test_what_is_chosen_by_a_product_of_indices_is_made() -> None:
    product = hidden("ge", 0, 70, 50)
    code = list(product.code)
    code[6] = Apply(12, "mul", (2, 1), I64)
    assert masked_tiles.visible_entries(replace(product, code=tuple(code))) is None
