"""Every op, exported to ONNX: the reference runtime gives graphc's own result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from export.onnx_runs import differs, run_reference

from graphc.export.model import onnx_model
from graphc.export.rules import REFUSED, RULES
from graphc.ir.builder import Builder
from graphc.ir.graph import Graph
from graphc.ir.op import Op, all_ops, op_named
from graphc.ir.types import BF16, BOOL, F16, F32, F64, I32, I64, U8, DType, TensorType
from graphc.ops.shape import Broadcast
from graphc.ops.source import Input
from graphc.support.errors import GraphcError
from graphc.testing.samples import Case, sample_cases, typed_cases

OPS = [name for name, cls in all_ops().items() if cls.samples()]
# ONNX's reference runtime computes erf in f32, whatever the dtype.
LOOSER = {"erf": 1e-6}


def graph_of(op: Op, types: Sequence[TensorType]) -> Graph:
    f = Builder("one")
    xs = [f.add(Input(f"x{i}"), type=t, name=f"x{i}") for i, t in enumerate(types)]
    f.outputs["y"] = f.add(op, xs).name
    return f.build()


def check(op: Op, *xs: Any, what: str = "") -> None:
    """Raise AssertionError where ONNX gives another result than the op's reference kernel."""
    from graphc.ir.types import dtype_of

    types = [TensorType(x.shape, dtype_of(x.dtype)) for x in xs]
    with np.errstate(all="ignore"):
        want = op.run(*xs)
    model = onnx_model(graph_of(op, types), {})
    have = run_reference(model, {f"x{i}": x for i, x in enumerate(xs)})["y"]
    found = differs(have, want, LOOSER.get(op.name, 0))
    assert not found, f"{what or op}: {found}"


def exported(case: Case) -> None:
    check(case.op, *case.operands(), what=str(case))


@pytest.mark.parametrize("name", OPS)
def test_an_op_gives_its_result_in_every_dtype(name: str) -> None:
    for case in sample_cases([op_named(name)]):
        for typed in typed_cases(case):
            if type(case.op) in REFUSED:
                with pytest.raises(
                    GraphcError, match=f"%{name} = {name} can't be exported to ONNX"
                ) as e:
                    exported(typed)
                assert e.value.code == "G0651"
            else:
                exported(typed)


def test_every_op_before_placing_has_a_rule_or_a_reason() -> None:
    known = {*RULES, *REFUSED, Broadcast}
    lacking = {n for n, c in all_ops().items() if c not in known and c.samples() and not c.source}
    assert lacking == set()
    assert not RULES.keys() & REFUSED.keys()


# -- where NumPy, graphc and ONNX might differ -----------------------------------------------------

WHOLE = [-7, -6, -1, 0, 1, 5, 7, 100]
ODD = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-30, 2.5, -2.5, 0.1, 1e30, 3.5, 0.5, -0.5]


def pairs(values: Sequence[float], dtype: DType) -> list[Any]:
    a, b = np.meshgrid(np.array(values), np.array(values))
    with np.errstate(all="ignore"):
        return [x.reshape(-1).astype(dtype.numpy) for x in (a, b)]


@pytest.mark.parametrize("name", ["mod", "floor_div"])
@pytest.mark.parametrize("dtype", [I32, I64])
def test_integers_are_divided_as_in_numpy(name: str, dtype: DType) -> None:
    check(op_named(name)(), *pairs(WHOLE, dtype))


def test_small_integers_are_divided_as_in_numpy() -> None:
    for name in ("mod", "floor_div", "add", "sub", "mul", "maximum", "minimum"):
        check(op_named(name)(), *pairs([0, 1, 3, 100, 200, 255], U8))


BINARY = ["mod", "floor_div", "add", "mul", "div", "pow", "maximum", "minimum", "arctan2", "eq", "ne", "lt", "le"]  # fmt: skip
UNARY = ["neg", "exp", "expm1", "log", "log1p", "sqrt", "tanh", "logistic", "erf", "abs", "sign", "floor", "round", "is_finite"]  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_odd_floats_are_as_in_numpy_in_pairs(name: str) -> None:
    for dtype in (F64, F32):
        check(op_named(name)(), *pairs(ODD, dtype))
    check(op_named(name)(), *pairs([x for x in ODD if abs(x) != 1e30], F16))


@pytest.mark.parametrize("name", UNARY)
def test_odd_floats_are_as_in_numpy(name: str) -> None:
    for dtype in (F64, F32, F16, BF16):
        values = np.array([*ODD, 1e-4, -1e-4, 1e-7, 20, 80, -20, -80])
        with np.errstate(over="ignore"):
            check(op_named(name)(), values.astype(dtype.numpy))


@pytest.mark.parametrize("name", ["expm1", "log1p"])
def test_functions_that_are_exact_near_zero_are_so(name: str) -> None:
    x = np.concatenate([np.logspace(-20, 1, 60), -np.logspace(-20, -0.1, 60)])
    model = onnx_model(graph_of(op_named(name)(), [TensorType(x.shape, F64)]), {})
    have, want = run_reference(model, {"x0": x})["y"], op_named(name)().run(x)
    np.testing.assert_allclose(have, want, rtol=1e-15 * 4)


def test_the_first_of_equal_entries_counts() -> None:
    x = np.array([[1, 3, 3, 0], [2, 2, 2, 2], [0, -1, -1, 0]])
    for dtype in (F32, I32, U8, BOOL):
        for name in ("argmax", "argmin", "argsort"):
            check(op_named(name)(dim=1), np.maximum(x, 0).astype(dtype.numpy))


def test_a_nan_is_the_largest_and_the_smallest_entry_and_the_last() -> None:
    x = np.array([[1, np.nan, 3], [np.inf, np.nan, -np.inf], [np.nan, np.nan, 0], [2, 1, 2]])
    for dtype in (F64, F32, F16, BF16):
        for name in ("reduce_max", "reduce_min", "reduce_sum"):
            check(op_named(name)(over=(1,)), x.astype(dtype.numpy))
        for name in ("argmax", "argmin", "argsort", "cumsum"):
            check(op_named(name)(dim=1), x.astype(dtype.numpy))


def test_casts_round_as_numpy() -> None:
    x = np.array([0.5, 1.5, -0.5, -1.5, 2.999, -2.999, 0.0, 1e-8, 2049, 2051, 65519], np.float64)
    for to in (F32, F16, BF16, I32, I64, BOOL):
        check(op_named("cast")(dtype=to), x)
    whole = np.array([0, 1, -1, 255, 256, 16777217, -(2**31)], np.int64)
    for to in (F64, F32, I32, U8, BOOL):
        check(op_named("cast")(dtype=to), whole)
    for to in (F32, I32, U8, F16):
        check(op_named("cast")(dtype=to), np.array([True, False]))


def test_a_pad_has_zeros_between_before_and_behind() -> None:
    for dtype in (F32, F16, BF16, I32, U8, BOOL):
        x = np.arange(6).reshape(2, 3).astype(dtype.numpy)
        for op in ({"low": 1}, {"high": 2, "inner": 1}, {"low": 2, "high": 1, "inner": 3}):
            for dim in (0, 1):
                check(op_named("pad")(dim=dim, **op), x)


def test_infinities_stay_among_themselves_in_windows() -> None:
    x = np.array([[np.inf, 1, 2, 3, -np.inf, 5, np.nan]], np.float32)
    options = {"at": (1,), "strides": (2,), "dilations": (1,)}
    check(op_named("windows")(sizes=(2,), **options), x)
    folded = np.arange(12, dtype=np.float32).reshape(1, 3, 4)
    folded[0, 0, 0] = np.inf
    check(op_named("fold_windows")(lengths=(8,), **options), folded)


def test_all_dims_of_a_table_are_looked_up() -> None:
    table = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
    for dim in range(3):
        ids = np.array([[0, 1, 1], [1, 0, 0]], np.int32)
        check(op_named("gather")(dim=dim), table, ids)
        check(op_named("scatter_add")(dim=0, size=5), ids, np.ones((2, 3, 4), np.float32))
        along = np.array([[[0, 1, 0, 1]] * 3] * 2, np.uint8)
        check(op_named("take_along")(dim=dim), table, along)
