"""Running sums and sorting for GPUs, run by this processor, give the bits of the native backend's."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from backends.cupy.on_cpu import POSSIBLE, run_on_cpu
from backends.native.entries import DTYPES, Array, same, values
from backends.native.harness import run_kernel
from backends.native.test_products import Sizes, dense
from shares import dealt

from graphc.ir.types import BF16, F32, F64, I32, I64, U8, DType
from graphc.lowering.kernel.code import Parameter
from graphc.lowering.kernel.lines import LineFunction, LineKernel

pytestmark = pytest.mark.skipif(not POSSIBLE, reason="threads of blocks are played on Linux only")
# The axes beside a line, its length, and whether the entries of a line lie together.
SHAPES: list[tuple[Sizes, int, bool]] = [
    ((5,), 17, True), ((40,), 130, False), ((), 300, True), ((2, 3), 129, False), ((), 1, True),
    ((0,), 4, True), ((5,), 0, True), ((70,), 10, False), ((3, 4), 33, True), ((130,), 2, True),
    ((2,), 600, False),
]  # fmt: skip
FUNCTIONS: list[LineFunction] = ["running sum", "order", "sorted"]
CASES = list(product(SHAPES, FUNCTIONS, DTYPES))


def line_kernel(
    function: LineFunction, rows: Sizes, length: int, dtype: DType, together: bool = True
) -> LineKernel:
    """Its result is dense; of the source, neighbors are those of a line, or those beside it."""
    axes = tuple(range(len(rows) + 1))
    source = dense((*rows, length), axes if together else (axes[-1], *axes[:-1]))
    params = Parameter(dtype), Parameter(I32 if function == "order" else dtype, True)
    return LineKernel(params, function, rows, length, source, dense((*rows, length)))


def check(
    kernel: LineKernel, x: Array, mine: Callable[[LineKernel, list[Array]], Array] = run_on_cpu
) -> None:
    """A kernel for a GPU and the CPU's give the same bits; the sign of a NaN says nothing."""
    begin, end = kernel.part or (0, kernel.length)
    found = list[Array]()
    for run in (mine, run_kernel):
        out = np.full(x.size, 77, kernel.params[1].dtype.numpy)
        run(kernel, [x.copy(), out])
        found.append(out.reshape(*kernel.rows, kernel.length)[..., begin:end])
    assert same(*found), f"{found[0]}\nnot\n{found[1]}"


def checked(function: LineFunction, shape: tuple[Sizes, int, bool], dtype: DType) -> None:
    rows, length, together = shape
    rng = np.random.default_rng(length)
    check(
        line_kernel(function, rows, length, dtype, together),
        values(rng, (prod(rows) * length,), dtype),
    )


@pytest.mark.parametrize("case", dealt([*CASES[::29], *CASES], 2, 8), ids=str)
def test_lines_have_the_bits_of_the_cpu(
    case: tuple[tuple[Sizes, int, bool], LineFunction, DType],
) -> None:
    shape, function, dtype = case
    checked(function, shape, dtype)


@pytest.mark.parametrize(
    ("function", "dtype"),
    [
        ("order", I64),
        pytest.param("sorted", F32, marks=pytest.mark.ci),
        pytest.param("sorted", F64, marks=pytest.mark.slow),
        pytest.param("order", BF16, marks=pytest.mark.slow),
        pytest.param("running sum", F32, marks=pytest.mark.slow),
    ],
)
def test_lines_too_long_for_shared_memory(function: LineFunction, dtype: DType) -> None:
    checked(function, ((), 4500, True), dtype)


def test_the_own_memory_of_every_block_is_aligned() -> None:
    """Of a line of an odd length, whose keys have 8 bytes and whose numbers have 4."""
    checked("order", ((2,), 2801, True), I64)


@pytest.mark.parametrize("dtype", [F32, pytest.param(U8, marks=pytest.mark.slow)], ids=str)
def test_equal_entries_keep_their_order(dtype: DType) -> None:
    x = np.random.default_rng(0).integers(0, 3, 3 * 200).astype(dtype.numpy)
    check(line_kernel("order", (3,), 200, dtype), x)


@pytest.mark.ci
@pytest.mark.parametrize("function", ["order", "sorted"])
def test_zeros_are_equal_and_every_nan_is_last(function: LineFunction) -> None:
    bits = np.array([0x7F800001, 0xFFFFFFFF, 0xFF800001, 0x7FC00000, 0xFFC00000], np.uint32)
    odd = np.array([0.0, -0.0, 1e-45, -1e-45, np.inf, -np.inf, 3e38, -3e38], np.float32)
    every = np.concatenate([bits.view(np.float32), odd])
    check(line_kernel(function, (4,), 40, F32), np.random.default_rng(1).choice(every, 160))


@pytest.mark.ci
@pytest.mark.parametrize("part", [(0, 3), (180, 200)])
def test_only_what_is_asked_for_is_written(part: tuple[int, int]) -> None:
    whole = line_kernel("sorted", (3,), 200, F32)
    kernel = LineKernel(whole.params, "sorted", whole.rows, 200, whole.source, whole.result, part)
    x = values(np.random.default_rng(2), (600,), F32)
    check(kernel, x)
    out = np.full(600, 77, np.float32)
    run_on_cpu(kernel, [x, out])
    assert np.count_nonzero(out != 77) <= 3 * (part[1] - part[0])
