"""Running sums and orders along a dim as machine code: the bits of the ops' NumPy functions."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from backends.native.entries import (
    DTYPES,
    REFERENCE,
    batch_of,
    check_bits,
    everywhere,
    program_of,
    same,
    values,
)

from graphc.ir.op import Op
from graphc.ir.types import BF16, F32, F64, I32, U8, DType
from graphc.ops.ordering import Argsort, Cumsum
from graphc.testing.running import run

SHAPES: list[tuple[tuple[int, ...], int]] = [
    ((7,), 0),
    ((1,), 0),
    ((0,), 0),
    ((3, 0), 0),
    ((2, 0, 3), 1),
    ((300,), 0),
    ((5, 1), 1),
    ((5, 17), 0),
    ((5, 17), 1),
    ((3, 16, 4), 1),
    ((21, 40), 1),
    ((130, 70), 0),
    ((2, 129, 33), 1),
    ((2, 3, 128), 2),
    ((2, 3, 259), 2),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_lines_are_those_of_the_reference_bit_by_bit(
    shape: tuple[int, ...], dim: int, dtype: DType
) -> None:
    for seed, op in enumerate((Cumsum(dim), Argsort(dim))):
        x = values(np.random.default_rng(seed + sum(shape)), shape, dtype)
        for lies in ("dense", "transposed"):
            check_bits(op, [x], dtype, lies, front=bool(seed))


@pytest.mark.parametrize("dtype", [F32, F64, I32, U8, BF16], ids=str)
@pytest.mark.parametrize("n", [16, 128, 129, 3000])
def test_equal_entries_keep_their_order(n: int, dtype: DType) -> None:
    rng = np.random.default_rng(n)
    for few in (1, 2, 5):
        check_bits(Argsort(0), [rng.integers(0, few, n).astype(dtype.numpy)], dtype)


def test_zeros_are_equal_and_every_nan_is_last() -> None:
    bits = np.array([0x7F800001, 0xFFFFFFFF, 0xFF800001, 0x7FC00000, 0xFFC00000], np.uint32)
    odd = np.array([0.0, -0.0, 1e-45, -1e-45, np.inf, -np.inf, 3e38, -3e38], np.float32)
    for n in (40, 400):
        x = np.random.default_rng(n).choice(np.concatenate([bits.view(np.float32), odd]), n)
        check_bits(Argsort(0), [x], F32)


@pytest.mark.parametrize("op", [Cumsum(1), Cumsum(0), Argsort(1), Argsort(0)], ids=str)
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_threads_and_instruction_sets_change_no_bit(op: Op, dtype: DType) -> None:
    xs = [values(np.random.default_rng(4), (150, 140), dtype)]
    program, batch = program_of(op, xs, dtype), batch_of(xs)
    wanted = run(program, REFERENCE, batch)["y"]
    for found in everywhere(program, batch):
        assert same(found, wanted)
