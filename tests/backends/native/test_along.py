"""Entries read and added at indices as machine code: the bits of the ops' own NumPy functions."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from backends.native.entries import (
    DTYPES,
    NATIVE,
    REFERENCE,
    Array,
    batch_of,
    check_bits,
    everywhere,
    program_of,
    same,
    values,
)

from graphc.ir.op import Op
from graphc.ir.types import F32, DType
from graphc.ops.indexing import AddAlong, Gather, ScatterAdd, TakeAlong
from graphc.runtime.synchronous.engine import Engine
from graphc.support.errors import GraphcError
from graphc.testing.running import run

SHAPES: list[tuple[tuple[int, ...], int, int]] = [  # of the table, a dim, and indices along it
    ((7,), 0, 5),
    ((1,), 0, 40),
    ((5, 17), 0, 33),
    ((5, 17), 1, 16),
    ((3, 16, 4), 1, 7),
    ((2, 3, 40), 0, 3),
    ((4, 0, 3), 0, 2),
    ((6, 5), 1, 0),
    ((1, 1), 1, 1),
]


def operands(op: Op, shape: tuple[int, ...], n: int, dtype: DType, seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    dim: int = op.dim  # type: ignore[attr-defined]
    picked = (*shape[:dim], n, *shape[dim + 1 :])
    ids = (n,) if isinstance(op, Gather | ScatterAdd) else picked
    where = rng.integers(0, max(shape[dim], 1), ids).astype((np.int32, np.int64)[seed % 2])
    if isinstance(op, Gather | TakeAlong):
        return [values(rng, shape, dtype), where]
    return [where, values(rng, picked, dtype)]


def ops_of(shape: tuple[int, ...], dim: int) -> list[Op]:
    size = shape[dim]
    return [Gather(dim), TakeAlong(dim), ScatterAdd(dim, size), AddAlong(dim, size)]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "dim", "n"), SHAPES)
def test_entries_are_those_of_the_reference_bit_by_bit(
    shape: tuple[int, ...], dim: int, n: int, dtype: DType
) -> None:
    for seed, op in enumerate(ops_of(shape, dim)):
        xs = operands(op, shape, n, dtype, seed)
        lies = ("dense", "transposed")[(seed + n + DTYPES.index(dtype)) % 2]
        check_bits(op, xs, dtype, lies, front=bool(seed % 2))


@pytest.mark.parametrize("wrong", [-1, 5, 1 << 20])
@pytest.mark.parametrize("op", [TakeAlong(0), AddAlong(0, 5)], ids=str)
def test_an_index_out_of_range_is_told_as_the_op_tells_it(op: Op, wrong: int) -> None:
    xs = operands(op, (5, 3), 4, F32, 0)
    ids = xs[1] if isinstance(op, TakeAlong) else xs[0]
    ids[2, 1] = wrong
    for backend in (REFERENCE, NATIVE):
        with Engine({"step": program_of(op, xs, F32)}, backend) as engine:
            text = f"{op.name}: index {wrong}.* is out of range for a dim of 5"
            with pytest.raises(GraphcError, match=text):
                engine.step(batch_of(xs))


@pytest.mark.parametrize("op", [TakeAlong(1), AddAlong(1, 40)], ids=str)
def test_threads_and_instruction_sets_change_no_bit(op: Op) -> None:
    xs = operands(op, (60, 40), 70, F32, 1)
    program, batch = program_of(op, xs, F32), batch_of(xs)
    wanted = run(program, REFERENCE, batch)["y"]
    for found in everywhere(program, batch):
        assert same(found, wanted)
