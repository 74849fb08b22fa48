"""Kernels for GPUs, run by this processor, give the bits of the native backend's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from backends.cupy.on_cpu import POSSIBLE, Parted, compile_on_cpu, run_on_cpu
from backends.native.harness import run_kernel
from backends.native.test_nests import CASES, adding, folding, numbers, softmax, strides
from backends.native.test_rows import IDS
from graphc_cupy.ptx import apart, folds, nests, serial, team_rows
from graphc_cupy.ptx.kernels import PRINTERS
from graphc_cupy.ptx.row_order import in_sectors
from graphc_cupy.ptx.threads import BlockThreads
from graphc_llvm.vectors import memory_type
from guard import Stray
from shares import every

from graphc.ir.types import BF16, BOOL, F16, F32, F64, I32, I64, DType
from graphc.lowering.kernel.code import (
    Access,
    Apply,
    Check,
    IndexLinks,
    Load,
    Nest,
    Number,
    Parameter,
    Phase,
    ReductionKind,
    RowReduction,
    Store,
)

pytestmark = pytest.mark.skipif(not POSSIBLE, reason="threads of blocks are played on Linux only")
Array = np.ndarray[Any, np.dtype[Any]]


def check(nest: Nest, arrays: list[Array] | None = None, threads: int = 256) -> None:
    """A nest for a GPU and the CPU's leave the same bits in all memory."""
    n = 100 + max(prod(nest.rows) * prod(nest.columns), 1)
    arrays = arrays or [numbers(p.dtype, n, k) for k, p in enumerate(nest.params)]
    mine, wanted = [x.copy() for x in arrays], [x.copy() for x in arrays]
    run_on_cpu(nest, mine, threads)
    run_kernel(nest, wanted)
    for x, y in zip(mine, wanted, strict=True):
        assert x.tobytes() == y.tobytes(), f"{x}\nnot\n{y}"


@pytest.mark.parametrize("nest", every(9, CASES[3:] + CASES[:3]))
def test_a_nest_gives_the_bits_of_the_cpu(nest: Nest) -> None:
    check(nest)


FOLDS: list[tuple[DType, ReductionKind, tuple[int, ...], tuple[int, ...]]] = [
    (F32, "sum", (5,), (1,)), (F32, "sum", (7,), (63,)), (F16, "sum", (3,), (64,)),
    (F64, "sum", (1,), (16_500,)), (BF16, "max", (40,), (33,)), (F32, "sum", (), (70_001,)),
    (F32, "sum", (2,), (300, 70)), (F32, "min", (3,), (2, 3, 65)), (I64, "sum", (4,), (1000, 3)),
    (BOOL, "max", (9,), (100,)), (I32, "min", (3, 6), (130,)), (F32, "sum", (20,), (0,)),
]  # fmt: skip


@pytest.mark.parametrize("case", every(6, FOLDS), ids=str)
@pytest.mark.parametrize("lanes", ["rows", "columns"])
def test_a_fold_adds_in_the_order_of_the_cpu(case: Any, lanes: Any) -> None:
    dtype, kind, rows, columns = case
    nest = folding(dtype, kind, rows, columns, strides((*rows, *columns)), lanes)
    check(nest)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [64, 1024])
@pytest.mark.parametrize("columns", [(40,), (200,), (4, 70)], ids=str)
def test_the_number_of_threads_changes_no_bit(threads: int, columns: tuple[int, ...]) -> None:
    check(softmax((37,), columns, "columns"), threads=threads)


def test_neighboring_threads_read_what_lies_together() -> None:
    """A copy that is transposed on both sides has its long axis last; a transpose stays."""
    both = adding(F32, (300, 7), (1, 300), (1, 300))
    store = Store(Access(2, (1, 300)), 2)
    both = replace(both, phases=(Phase(False, (*both.phases[0].code[:-1], store)),))
    assert in_sectors(both).rows == (7, 300)
    check(both)
    one = adding(F32, (300, 70), (1, 300), (70, 1))
    assert in_sectors(one) is one
    assert in_sectors(replace(both, serial=True)).rows == (300, 7)


# -- rows that store, and threads that meet ------------------------------------------------------


def updating(lanes: Any) -> Nest:
    """A sum, a row's own value that is updated in place and read again, and a map of both."""
    cell = (Load(0, Access(0, (90, 1))), RowReduction(1, "sum", 0, F32, 0))
    row = (
        Load(2, Access(1, (1, 0))), Apply(3, "add", (2, 1), F32), Store(Access(1, (1, 0)), 3),
        Load(4, Access(1, (1, 0))), Apply(5, "mul", (4, 2), F32),
    )  # fmt: skip
    last = (Load(6, Access(0, (90, 1))), Apply(7, "mul", (6, 5), F32), Store(Access(2, (90, 1)), 7))
    params = (Parameter(F32), Parameter(F32, True), Parameter(F32, True))
    phases = (Phase(True, cell), Phase(False, row), Phase(True, last))
    return Nest(params, (33,), (90,), phases, lanes)


@pytest.mark.parametrize("lanes", ["rows", "columns"])
def test_one_thread_updates_a_row_and_hands_on_what_it_had(lanes: Any) -> None:
    check(updating(lanes))


def test_a_result_may_overwrite_its_operand() -> None:
    nest, x = softmax((40,), (70,), "columns"), numbers(F32, 2800)
    mine, wanted = x.copy(), x.copy()
    run_on_cpu(nest, [mine, mine])
    run_kernel(nest, [wanted, wanted])
    assert mine.tobytes() == wanted.tobytes()


# -- rows in order -------------------------------------------------------------------------------


def scattering(rows: tuple[int, ...], wide: int, limit: int, swapped: bool = False) -> Nest:
    """Rows of `wide` entries, added to those of a table; swapped: to its columns."""
    n, at = rows[0], (0, limit) if swapped else (0, 1)
    code = (
        Load(0, Access(0, (1, 0))), Check(1, 0, limit, 1), Load(2, Access(1, (wide, 1))),
        Store(Access(2, at, row=1, step=1 if swapped else wide), 2, add=True),
    )  # fmt: skip
    params = (Parameter(I32), Parameter(F32), Parameter(F32, True))
    return Nest(params, (n, wide), (), (Phase(False, code),), serial=True)


@pytest.mark.parametrize("swapped", [False, True])
def test_threads_share_what_no_other_row_touches(swapped: bool) -> None:
    nest = scattering((300,), 40, 7, swapped)
    assert apart.shared_axis(nest) == 1 and apart.shared_row(nest) == (None if swapped else 1)
    assert nests.units(nest) == (40 if swapped else 40 * serial.MOST)
    ids = np.random.default_rng(1).integers(0, 7, 300).astype(np.int32)
    check(nest, [ids, numbers(F32, 12_000), numbers(F32, 280)])


def test_rows_that_may_meet_anywhere_are_one_thread_s() -> None:
    nest = scattering((300,), 40, 7)
    code = (*nest.phases[0].code[:3], Store(Access(2, (0, 1), row=1, step=39), 2, add=True))
    nest = Nest(nest.params, nest.rows, (), (Phase(False, code),), serial=True)
    assert apart.shared_axis(nest) is None and apart.shared_row(nest) is None
    assert nests.units(nest) == 1
    ids = np.random.default_rng(1).integers(0, 7, 300).astype(np.int32)
    check(nest, [ids, numbers(F32, 12_000), numbers(F32, 280)])


def test_folds_of_rows_in_order_are_a_team_s() -> None:
    """Each row is scaled by the sum of the row before it."""
    cell = (Load(0, Access(0, (70, 1))), RowReduction(1, "sum", 0, F32, 0))
    row = (Number(2, 0.01, F32), Apply(3, "mul", (1, 2), F32))
    last = (
        Load(4, Access(0, (70, 1), 70)),
        Apply(5, "add", (4, 3), F32),
        Store(Access(0, (70, 1), 70), 5),
    )
    phases = (Phase(True, cell), Phase(False, row), Phase(True, last))
    nest = Nest((Parameter(F32, True),), (9,), (70,), phases, "columns", serial=True)
    check(nest, [numbers(F32, 700)])


# -- checks and links ----------------------------------------------------------------------------


def test_a_wrong_index_is_noted_with_one_of_the_values_that_were_wrong() -> None:
    ids = np.array([0, 9, 1, -3] * 200, np.int32)
    code = (Load(0, Access(0, (1,))), Check(1, 0, 5, 2), Store(Access(1, (1,)), 1))
    nest = Nest((Parameter(I32), Parameter(I32, True)), (800,), (), (Phase(False, code),))
    errors = run_on_cpu(nest, arrays := [ids, np.zeros(800, np.int32)])
    assert errors[2].tolist() in ([1, 9], [1, -3]) and not errors[:2].any()
    np.testing.assert_array_equal(arrays[1], ids.clip(0, 4))


def test_a_kernel_does_nothing_where_a_check_has_failed() -> None:
    code = (Load(0, Access(0, (1,))), Apply(1, "neg", (0,), F32), Store(Access(0, (1,)), 1))
    nest = Nest((Parameter(F32, True),), (300,), (), (Phase(False, code),))
    compiled, x = compile_on_cpu(nest), np.ones(300, np.float32)
    for failed, wanted in ((1, 1), (-(1 << 40), 1), (0, -1)):
        word = np.array([failed])
        compiled.run([x.ctypes.data], 0, 0, word.ctypes.data)
        assert (x == wanted).all()


@pytest.mark.parametrize("count", [2, 70, 5000])
def test_one_word_tells_whether_any_check_has_failed(count: int) -> None:
    every = Phase(True, (Load(0, Access(0, (1,))), RowReduction(1, "max", 0, I64, 0)))
    result = Phase(False, (Store(Access(1, (0,)), 1),))
    nest = Nest((Parameter(I64), Parameter(I64, True)), (), (count,), (every, result), "columns")
    for words in ({}, {0: 1}, {count - 2: 1, count - 1: -9}):
        x, found = np.zeros(count, np.int64), np.zeros(1, np.int64)
        for place, value in words.items():
            x[place] = value
        run_on_cpu(nest, [x, found])
        assert bool(found[0]) == bool(words)


@pytest.mark.parametrize("dtype", [I32, pytest.param(I64, marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("name", every(7, [*IDS][2:] + [*IDS][:2]))
def test_links_tell_the_next_place_of_an_index(name: str, dtype: DType) -> None:
    ids, limit = np.array(IDS[name], dtype.numpy), max(IDS[name]) + 1
    kernel = IndexLinks((Parameter(dtype), Parameter(I32, True)), len(ids), limit, 0)
    found, wanted = np.full(len(ids), 99, np.int32), np.full(len(ids), 99, np.int32)
    assert not run_on_cpu(kernel, [ids, found]).any()
    run_kernel(kernel, [ids, wanted])
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("wrong", every(3, [8, -1, -(1 << 31)]))
def test_an_index_that_no_row_has_is_noted(wrong: int) -> None:
    ids, found = np.array([1, wrong, 7, 1], np.int32), np.zeros(4, np.int32)
    kernel = IndexLinks((Parameter(I32), Parameter(I32, True)), 4, 8, 2)
    errors = run_on_cpu(kernel, [ids, found])
    assert errors[2].tolist() == [1, wrong] and not errors[:2].any()
    assert found.tolist() == [3, 4, 4, -5]


# -- the judge sees what is wrong ----------------------------------------------------------------


@contextmanager
def planted(owner: Any, name: str, value: Any) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, value)
        yield


@contextmanager
def planted_printer(**what: Any) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PRINTERS, Nest, replace(PRINTERS[Nest], **what))
        yield


@pytest.mark.parametrize("left_out", every(6, range(6)))
def test_a_barrier_that_is_left_out_is_found(left_out: int) -> None:
    printed, barrier = list[int](), BlockThreads.barrier

    def some(self: BlockThreads) -> None:
        printed.append(0)
        if len(printed) - 1 != left_out:
            barrier(self)

    with (
        planted_printer(grain=lambda nest, machine: 33),  # all rows in turns of one block
        planted(BlockThreads, "barrier", some),
        pytest.raises(AssertionError),
    ):
        check(updating("columns"))
    assert len(printed) == 6


def test_threads_that_do_not_all_meet_are_found() -> None:
    meet = team_rows.TeamRows._meet

    def parted(self: Any) -> None:
        self.f.p.when(self.has_row, lambda: meet(self))

    with planted(team_rows.TeamRows, "_meet", parted), pytest.raises(Parted, match="wait for"):
        check(updating("columns"))


def test_a_sum_that_begins_with_something_is_found() -> None:
    with planted(folds.ColumnLoops, "nothing", lambda self, many=1: [
        self.p.number(1.0, memory_type(x.dtype)) for x in self.folds
    ] * many), pytest.raises(AssertionError):  # fmt: skip
        check(folding(F32, "sum", (5,), (200,), (200, 1), "columns"))


def test_a_row_too_many_is_found() -> None:
    nest = folding(F32, "sum", (5,), (7,), (7, 1), "rows")
    with planted_printer(units=lambda nest: 6), pytest.raises(Stray):
        run_on_cpu(nest, [numbers(F32, 35), numbers(F32, 5)])
