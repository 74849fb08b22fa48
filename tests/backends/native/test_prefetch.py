"""Rows of tables that are asked for before their turn, and what is read once for all lanes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from backends.native.harness import compile_kernel, run_kernel
from backends.native.reference import run_nest

from graphc.ir.types import F32, I32
from graphc.lowering.kernel.code import (
    Access,
    Apply,
    Check,
    Gemm,
    Load,
    LoopKernel,
    Nest,
    Number,
    Parameter,
    Phase,
    RowReduction,
    Side,
    Store,
)

Array = np.ndarray[Any, np.dtype[Any]]
LARGE = 20_000  # rows of a table that no second-level cache holds


def lookup(batch: int, each: int, width: int, limit: int) -> Nest:
    """The sums of `each` rows of a table, for every entry of a batch."""
    cells = (
        Load(0, Access(0, (each, 0, 1))), Check(1, 0, limit, 0),
        Load(2, Access(1, (0, 1, 0), row=1, step=width)), RowReduction(3, "sum", 2, F32, 0),
    )  # fmt: skip
    end = (Store(Access(2, (width, 1, 0)), 3),)
    params = Parameter(I32), Parameter(F32), Parameter(F32, True)
    return Nest(params, (batch, width), (each,), (Phase(True, cells), Phase(False, end)), "rows")


def update(batch: int, each: int, width: int, limit: int) -> Nest:
    """Rows are added to a table, where an index is clamped to the rows that there are."""
    code = (
        Load(0, Access(0, (each, 1, 0))), Number(1, 0, I32),
        Apply(2, "maximum", (0, 1), I32), Number(3, limit - 1, I32),
        Apply(4, "minimum", (2, 3), I32), Load(5, Access(2, (width, 0, 1))),
        Store(Access(1, (0, 0, 1), row=4, step=width), 5, add=True),
    )  # fmt: skip
    params = Parameter(I32), Parameter(F32, True), Parameter(F32)
    return Nest(params, (batch, each, width), (), (Phase(False, code),), "rows")


def arrays(batch: int, each: int, width: int, limit: int) -> list[Array]:
    rng = np.random.default_rng(batch)
    ids = rng.integers(0, limit, batch * each).astype(np.int32)
    table = rng.standard_normal(limit * width).astype(np.float32)
    return [ids, table, np.ones(batch * width, np.float32)]


def text(nest: LoopKernel) -> str:
    compiled = compile_kernel(nest)
    return str(compiled.module)


@pytest.mark.parametrize("made", [lookup, update])
@pytest.mark.parametrize("size", [(1, 1, 16), (40, 1, 16), (70, 3, 37), (33, 8, 64), (300, 1, 130)])
def test_rows_are_asked_for_up_to_the_last(made: Any, size: tuple[int, int, int]) -> None:
    nest, found = made(*size, LARGE), arrays(*size, LARGE)
    expected = [x.copy() for x in found]
    assert not run_kernel(nest, found).any()
    run_nest(nest, expected)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("made", [lookup, update])
def test_only_rows_of_large_tables_are_asked_for(made: Any) -> None:
    assert text(made(512, 8, 64, LARGE)).count("call void @llvm.prefetch") == 4  # lines of a row
    assert "llvm.prefetch" not in text(made(2, 8, 64, LARGE))
    assert "llvm.prefetch" not in text(made(512, 8, 64, 100))


def test_an_index_far_outside_is_noted_and_asking_for_its_row_does_no_harm() -> None:
    nest, (ids, table, out) = lookup(300, 8, 64, LARGE), arrays(300, 8, 64, LARGE)
    ids[2000] = -(1 << 31)
    errors = run_kernel(nest, [ids, table, out])
    assert errors[0].tolist() == [1, -(1 << 31)]


def test_an_index_is_read_and_checked_once_for_all_vectors_beside_each_other() -> None:
    assert text(lookup(2, 8, 64, LARGE)).count("icmp ugt") == 1


def product(inner: int) -> Gemm:
    """A matrix product, of which a part is added to a matrix and a bias to all rows."""
    code = (
        Load(1, Access(2, (512, 1))), Apply(2, "add", (0, 1), F32), Load(3, Access(3, (0, 1))),
        Apply(4, "add", (2, 3), F32), Store(Access(2, (512, 1)), 4),
    )  # fmt: skip
    sides = Side(0, (), (inner,), (1,), (0,)), Side(1, (), (0,), (512,), (1,))
    params = Parameter(F32), Parameter(F32), Parameter(F32, True), Parameter(F32)
    return Gemm(params, *sides, (), (64,), (inner,), (512,), F32, code)


def test_tiles_prefetch_for_the_epilogue_row_by_row() -> None:
    assert "_with_epilogue" in text(product(256))
    assert "_with_epilogue" not in text(product(8))  # such a tile is done before memory answers


def test_tiles_prefetch_the_next_columns_of_an_operand_that_is_read_as_it_lies() -> None:
    found = text(product(256))
    assert "_prefetches" in found and found.count("call void @llvm.prefetch") >= 2
    assert "_prefetches" not in text(product(8))  # 16 KiB, which lie in the first-level cache


@pytest.mark.parametrize("inner", [40, 300, 1100])  # of the last, sums are added up by blocks
def test_products_whose_tiles_prefetch_are_right_up_to_the_last_column(inner: int) -> None:
    rng = np.random.default_rng(inner)
    sizes = 64 * inner, inner * 512, 64 * 512, 512
    left, right, out, bias = [rng.standard_normal(n).astype(np.float32) for n in sizes]
    f64 = [x.astype(np.float64) for x in (left, right, out, bias)]
    want = f64[0].reshape(64, inner) @ f64[1].reshape(inner, 512) + f64[2].reshape(64, 512) + f64[3]
    assert not run_kernel(product(inner), [left, right, out, bias]).any()
    np.testing.assert_allclose(out.reshape(64, 512), want, rtol=1e-4, atol=1e-3)
