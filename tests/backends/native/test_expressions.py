"""Statements in one place of the loops: strides, indirect rows, adding stores, checks."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from graphc_llvm.expression_codegen import ExpressionPrinter
from graphc_llvm.vectors import INT64, POINTER, VOID, Vector, index
from graphc_numpy.native.machine import host_printer
from llvmlite import binding, ir

from graphc.ir.types import BF16, BOOL, F16, F32, F64, I32, I64, U8, DType
from graphc.lowering.kernel.code import (
    Access,
    Apply,
    AxisIndex,
    Check,
    Load,
    Number,
    Parameter,
    Statement,
    Store,
)

Array = np.ndarray[Any, np.dtype[Any]]


def run(
    code: Sequence[Statement], arrays: Sequence[Array], dtypes: Sequence[DType],
    at: tuple[int, ...], lanes: int | None, active: int = 16, placed: tuple[int, ...] = (),
) -> Array:  # fmt: skip
    """Run statements in one place; `placed` axes are added to the addresses before."""
    module, kinds = ir.Module("test"), [POINTER] * (len(arrays) + 1)
    function = ir.Function(module, ir.FunctionType(VOID, kinds), "cell")
    p = host_printer(ir.IRBuilder(function.append_basic_block("entry")))
    params = tuple(Parameter(d) for d in dtypes)
    cells = ExpressionPrinter(p, params, function.args[:-1], function.args[-1])
    indices = [index(k) for k in at]
    cells = cells.with_indices(code, indices, placed)
    cells.run(code, {}, indices, lanes, active)
    p.b.ret_void()
    errors = np.zeros((4, 2), np.int64)
    _call(module, [*arrays, errors])
    return errors


def _call(module: ir.Module, arrays: Sequence[Array]) -> None:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    parsed = binding.parse_assembly(str(module))
    parsed.verify()
    machine = binding.Target.from_default_triple().create_target_machine(opt=2, jit=True)
    with binding.create_mcjit_compiler(parsed, machine) as engine:
        engine.finalize_object()
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(arrays))
        kind(engine.get_function_address("cell"))(*[x.ctypes.data for x in arrays])


def numbers(dtype: DType, *shape: int) -> Array:
    return (np.arange(int(np.prod(shape))).reshape(shape) % 100 + 1).astype(dtype.numpy)


@pytest.mark.parametrize("dtype", [F64, F32, F16, BF16, I64, I32, U8, BOOL], ids=str)
@pytest.mark.parametrize("stride", [0, 1, 2, 5])
@pytest.mark.parametrize("active", [1, 15, 16])
@pytest.mark.parametrize("placed", [(), (0,), (0, 1)], ids=str)
def test_a_load_and_a_store_reach_the_entries_of_any_stride(
    dtype: DType, stride: int, active: int, placed: tuple[int, ...]
) -> None:
    x, y = numbers(dtype, 300), np.zeros(200, dtype.numpy)
    code = (Load(0, Access(0, (100, stride), 3)), Store(Access(1, (7, 2)), 0))
    run(code, [x, y], [dtype, dtype], (2, 4), 1, active, placed)
    expected = np.zeros(200, dtype.numpy)
    for k in range(4, 4 + active):
        expected[14 + 2 * k] = x[203 + stride * k]
    np.testing.assert_array_equal(y, expected)


def test_one_lane_is_one_entry() -> None:
    x, y = numbers(F32, 20), np.zeros(20, np.float32)
    run((Load(0, Access(0, (3,))), Store(Access(1, (1,)), 0)), [x, y], [F32, F32], (4,), None)
    assert y[4] == x[12] and np.count_nonzero(y) == 1


@pytest.mark.parametrize("lanes", [None, 0, 1])
def test_a_uniform_row_is_read_in_one_piece_and_rows_by_lane_one_by_one(lanes: int | None) -> None:
    rows, table = np.array([3, 1, 2, 0] * 5, np.int32), numbers(F32, 4, 20)
    y = np.zeros((20, 20), np.float32)
    code = (
        Load(0, Access(0, (1, 0))),
        Load(1, Access(1, (0, 1), row=0, step=20)),
        Store(Access(2, (20, 1)), 1),
    )
    run(code, [rows, table, y], [I32, F32, F32], (2, 3), lanes, 15)
    here = {None: np.s_[2:3, 3:4], 0: np.s_[2:17, 3:4], 1: np.s_[2:3, 3:18]}[lanes]
    np.testing.assert_array_equal(y[here], table[rows][here])
    assert np.count_nonzero(y) == y[here].size


def test_lanes_that_add_to_one_place_all_count() -> None:
    rows, y = np.array([1, 0, 1, 1] * 4, np.int64), np.zeros(3, np.float32)
    code = (
        Load(0, Access(0, (1,))),
        Number(1, 2.0, F32),
        Store(Access(1, (0,), row=0, step=1), 1, add=True),
        Store(Access(1, (0,), 2), 1, add=True),
    )
    run(code, [rows, y], [I64, F32], (0,), 0, 15)
    np.testing.assert_array_equal(y, [8, 22, 30])


@pytest.mark.parametrize("stride", [1, 3])
def test_an_adding_store_adds_once_an_entry(stride: int) -> None:
    x, y = numbers(F32, 16), numbers(F32, 64)
    before = y.copy()
    code = (Load(0, Access(0, (1,))), Store(Access(1, (stride,)), 0, add=True))
    run(code, [x, y], [F32, F32], (0,), 0, 14)
    before[: 14 * stride : stride] += x[:14]
    np.testing.assert_array_equal(y, before)


def test_an_index_counts_along_the_lanes_and_is_one_number_along_other_axes() -> None:
    y, z = np.zeros(16, np.int64), np.zeros(16, np.int64)
    code = (
        AxisIndex(0, 1),
        AxisIndex(1, 0),
        Store(Access(0, (0, 1)), 0),
        Store(Access(1, (0, 1)), 1),
    )
    run(code, [y[0:], z], [I64, I64], (5, 0), 1)
    np.testing.assert_array_equal(y, np.arange(16))
    np.testing.assert_array_equal(z, np.full(16, 5))


@pytest.mark.parametrize("dtype", [I32, I64, U8], ids=str)
@pytest.mark.parametrize("limit", [0, 1, 10, 127, 300, 1 << 40])
@pytest.mark.parametrize("lanes", [None, 0])
def test_a_check_clamps_and_notes_the_first_value_outside(
    dtype: DType, limit: int, lanes: int | None
) -> None:
    x = np.array([0, 9, 12, 130, 200] * 4).astype(dtype.numpy)
    if dtype != U8:
        x[3] = -7
    y, n = np.full(20, 99, dtype.numpy), 1 if lanes is None else 13
    code = (Load(0, Access(0, (1,))), Check(1, 0, limit, 2), Store(Access(1, (1,)), 1))
    errors = run(code, [x, y], [dtype, dtype], (1,), lanes, n)
    seen = [int(v) for v in x[1 : 1 + n]]
    outside = [v for v in seen if not 0 <= v < limit]
    assert list(errors[2]) == ([1, outside[0]] if outside else [0, 0])
    assert not errors[[0, 1, 3]].any()
    np.testing.assert_array_equal(y[1 : 1 + n], [min(max(v, 0), max(limit - 1, 0)) for v in seen])


def test_lanes_that_are_masked_off_note_no_error() -> None:
    x, y = np.arange(16, dtype=np.int64), np.zeros(16, np.int64)
    code = (Load(0, Access(0, (1,))), AxisIndex(1, 0), Check(2, 1, 4, 0), Store(Access(1, (1,)), 2))
    assert not run(code, [x, y], [I64, I64], (0,), 0, 4).any()
    assert run(code, [x, y], [I64, I64], (0,), 0, 5).any()


def test_arithmetic_on_uniform_registers_stays_in_one_lane() -> None:
    module = ir.Module("test")
    function = ir.Function(module, ir.FunctionType(VOID, [POINTER, POINTER]), "cell")
    p = host_printer(ir.IRBuilder(function.append_basic_block("entry")))
    registers: dict[int, Vector] = {}
    cells = ExpressionPrinter(p, (Parameter(F32),), function.args[:1], function.args[1])
    code = (Load(0, Access(0, (0,))), Load(1, Access(0, (1,))), Apply(2, "add", (0, 0), F32))
    cells.run((*code, Apply(3, "mul", (1, 2), F32)), registers, [ir.Constant(INT64, 0)], 0)
    assert [registers[k].width for k in range(4)] == [1, 16, 1, 16]
