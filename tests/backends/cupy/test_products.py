"""Products for GPUs, run by this processor, give the bits of the native backend's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from backends.cupy.generated_products import DTYPES, generated
from backends.cupy.on_cpu import POSSIBLE, run_on_cpu
from backends.native.harness import run_kernel
from backends.native.test_products import (
    GROUPS,
    SHAPES,
    Array,
    Groups,
    Sizes,
    by_channel,
    contraction,
    operands,
    weights,
    window,
)
from graphc_cupy.ptx import product_tiles
from graphc_cupy.ptx.kernels import PRINTERS
from graphc_cupy.ptx.product_tiles import LONGEST, THREADS, thread_tiling
from graphc_cupy.ptx.threads import BlockThreads
from shares import dealt

from graphc.ir.types import BF16, F32, DType
from graphc.lowering.kernel.code import Gemm

pytestmark = pytest.mark.skipif(not POSSIBLE, reason="threads of blocks are played on Linux only")


@pytest.fixture
def large_tiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A thread makes as many sums as it can, however few tiles there are."""
    monkeypatch.setattr(product_tiles, "ENOUGH", 1)
    thread_tiling.cache_clear()
    yield
    thread_tiling.cache_clear()


def check(product: Gemm, arrays: list[Array]) -> list[Array]:
    """A product for a GPU and the CPU's leave the same bits in all memory."""
    mine, wanted = [x.copy() for x in arrays], [x.copy() for x in arrays]
    run_on_cpu(product, mine)
    run_kernel(product, wanted)
    for x, y in zip(mine, wanted, strict=True):
        assert x.tobytes() == y.tobytes(), f"{x}\nnot\n{y}"
    return mine


def plain(product: Gemm, seed: int = 0) -> None:
    """With a dense result."""
    sizes = (*product.batch, *product.rows, *product.cols)
    out = np.full(max(1, int(np.prod(sizes))), 77, product.params[2].dtype.numpy)
    check(product, [*operands(product, seed), out])


@pytest.mark.parametrize("seed", dealt(range(100), 1, 9))
def test_a_product_gives_the_bits_of_the_cpu(seed: int) -> None:
    check(*generated(seed))


@pytest.mark.parametrize("seed", dealt(range(100, 140), 1, 4))
def test_large_tiles_give_the_bits_of_the_cpu(large_tiles: None, seed: int) -> None:
    check(*generated(seed))


@pytest.mark.parametrize("shape", dealt(SHAPES[::-1], 0, 2), ids=str)
def test_matrices_of_every_size(large_tiles: None, shape: tuple[int, int, int]) -> None:
    rows, inner, cols = shape
    for k, lies in enumerate(((0, 1), (1, 0))):
        groups: Groups = ((), (rows,), (inner,), (cols,))
        plain(contraction(groups, DTYPES[sum(shape) % 2], left=lies, right=lies), k)


@pytest.mark.parametrize("case", dealt(GROUPS[:-4], 0, 2), ids=str)
def test_groups_of_axes(case: tuple[Groups, dict[str, Sizes]]) -> None:
    groups, orders = case
    plain(contraction(groups, BF16, **orders))


@pytest.mark.slow
def test_convolutions_without_copies_of_windows() -> None:
    for product in (window(2, 8, 5, 9), weights(2, 8, 5, 9), *by_channel(2, 8, 5, 9)):
        plain(product)


@pytest.mark.ci
@pytest.mark.parametrize(("low", "inner"), [(-66, 7), (-75, 531)], ids=str)
def test_sums_of_bf16_have_no_subnormal_numbers(low: int, inner: int) -> None:
    product = contraction(((), (30,), (inner,), (40,)), BF16)
    rng = np.random.default_rng(inner)
    factors = [
        (x.astype("f") * np.float32(2.0) ** rng.integers(low, -62, x.size)).astype(BF16.numpy)
        for x in operands(product)
    ]
    out = np.zeros(1200, BF16.numpy)
    *_, out = check(product, [*factors, out])
    assert 0 < np.count_nonzero(out) < 1200


def test_a_tile_has_a_place_for_every_thread() -> None:
    for rows in (1, 2, 3, 16, 100, 5000):
        for cols in (1, 5, 16, 70, 5000):
            t = thread_tiling(contraction(((), (rows,), (9,), (cols,))))
            assert t.high * t.across == THREADS
            assert max(t.height, t.width) <= LONGEST
            assert t.grid[0] * t.height >= rows
            assert t.grid[1] * t.width >= cols


def test_large_products_have_large_tiles_and_small_ones_many() -> None:
    large = thread_tiling(contraction(((), (2048,), (9,), (2048,))))
    assert (large.height, large.width, large.units) == (64, 64, 1024)
    small = thread_tiling(contraction(((), (128,), (9,), (128,))))
    assert (small.height, small.width, small.units) == (16, 16, 64)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_which_results_are_written_along_the_rows(dtype: DType) -> None:
    groups: Groups = ((), (64,), (9,), (70,))
    assert not thread_tiling(contraction(groups, dtype)).by_rows
    assert thread_tiling(contraction(groups, dtype, result=(1, 0))).by_rows


@pytest.mark.parametrize("left_out", dealt([2, 0, 1, 3, 4, 5], 0, 2))
def test_a_barrier_that_is_left_out_is_found(
    large_tiles: None, left_out: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those around whole and shorter pieces of inner, and around the code; two tiles a block."""
    printed, barrier = list[int](), BlockThreads.barrier

    def some(self: BlockThreads) -> None:
        printed.append(0)
        if len(printed) - 1 != left_out:
            barrier(self)

    monkeypatch.setattr(BlockThreads, "barrier", some)
    mine = replace(PRINTERS[Gemm], grain=lambda product, machine: 4)
    monkeypatch.setitem(PRINTERS, Gemm, mine)
    with pytest.raises(AssertionError):
        plain(contraction(((), (70,), (41,), (60,)), F32))
    assert len(printed) == 6
