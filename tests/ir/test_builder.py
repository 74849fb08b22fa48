"""One vocabulary: operators, primitives and composites by name, promotion and broadcasting."""

import operator
from typing import Any

import numpy as np
import pytest

from graphc.ir.builder import Builder, Value
from graphc.ir.op import all_ops
from graphc.ir.registry import composite
from graphc.ir.types import BF16, BOOL, F16, F32, F64, I32, I64, U8, DType, TensorType, promote
from graphc.ops import COMPOSITES
from graphc.support.errors import GraphcError
from graphc.testing.compute import compute, fetch, inputs

A, B = np.random.default_rng(0).uniform(0.5, 2, (2, 3, 4))


@pytest.mark.parametrize(
    "op", [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow]
)
@pytest.mark.parametrize("right", [B, B[:1], B[0], B[:, :1], np.array(1.5)], ids=np.shape)
def test_operators_broadcast_as_numpy_does(op: Any, right: np.ndarray) -> None:
    np.testing.assert_allclose(compute(lambda f, x, y: op(x, y), A, right), op(A, right))
    np.testing.assert_allclose(compute(lambda f, x, y: op(x, y), right, A), op(right, A))


@pytest.mark.parametrize(
    "op", [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow]
)
@pytest.mark.parametrize("number", [3, 0.25])
def test_operators_take_numbers_on_both_sides(op: Any, number: float) -> None:
    np.testing.assert_allclose(compute(lambda f, x: op(x, number), A), op(A, number))
    np.testing.assert_allclose(compute(lambda f, x: op(number, x), A), op(number, A))


def test_negation_is_an_operator() -> None:
    assert np.array_equal(compute(lambda f, x: -x, A), -A)


@pytest.mark.parametrize("name", ["maximum", "gt", "mod", "arctan2", "floor_div"])
def test_elementwise_ops_of_two_operands_broadcast_when_called_by_name(name: str) -> None:
    assert compute(lambda f, x, y: getattr(f, name)(x, y), A, B[0]).shape == (3, 4)
    assert compute(lambda f, x: getattr(f, name)(x, 2), A).shape == (3, 4)
    assert compute(lambda f, x: getattr(f, name)(2, x), A).shape == (3, 4)


@pytest.mark.parametrize(
    "a, b, expected",
    [
        (F32, F64, F64), (I32, F32, F32), (I64, F32, F32), (BOOL, I32, I32), (U8, I32, I32),
        (F16, BF16, F32), (BF16, F32, F32), (I64, F16, F16), (BOOL, F32, F32),
    ],
)  # fmt: skip
def test_operands_are_promoted(a: DType, b: DType, expected: DType) -> None:
    f = Builder()
    x, y = inputs(f, [np.ones(2, a.numpy), np.ones(2, b.numpy)])
    assert (x * y).dtype == (y * x).dtype == promote(a, b) == expected


@pytest.mark.parametrize(
    "dtype, number, expected",
    [
        (F16, 0.1, F16), (F64, 1, F64), (I32, 2, I32), (I32, 0.5, F32), (U8, 3, U8),
        (BOOL, 2, I32), (BOOL, True, BOOL), (BOOL, 0.5, F32),
    ],
)  # fmt: skip
def test_numbers_take_the_dtype_beside_them(dtype: DType, number: float, expected: DType) -> None:
    f = Builder()
    (x,) = inputs(f, [np.ones(2, dtype.numpy)])
    assert f.match(x, number)[1].dtype == expected


def test_a_number_that_does_not_fit_beside_u8_is_an_error() -> None:
    with pytest.raises(GraphcError, match="-1 does not fit into u8"):
        compute(lambda f, x: x + -1, np.ones(2, np.uint8))


def test_integers_become_f32_where_an_op_works_on_floats() -> None:
    y = compute(lambda f, x: f.exp(x), np.arange(3, dtype=np.int32))
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, np.exp(np.arange(3)), rtol=1e-6)


def test_large_integers_are_not_rounded() -> None:
    x = np.array([2**60 + 1])
    for name in ("floor", "round", "ceil", "trunc"):
        assert compute(lambda f, v, n=name: getattr(f, n)(v), x) == x


def test_constants_alone_have_the_dtype_of_their_kind() -> None:
    f = Builder()
    assert [f.constant(v).dtype for v in (True, 1, 1.0)] == [BOOL, I32, F32]
    assert fetch(f, f.exp(0.0), {}) == 1


def test_shapes_that_do_not_broadcast_are_an_error_with_both() -> None:
    with pytest.raises(GraphcError, match=r"shapes \[3,4\] and \[3\] do not match"):
        compute(lambda f, x, y: x + y, A, A[:, 0])


# -- names ---------------------------------------------------------------------------------------


def test_no_composite_is_hidden_by_a_method_of_the_builder() -> None:
    assert set(dir(Builder())) & set(COMPOSITES) == set()


def test_only_add_is_hidden_among_the_ops_as_it_adds_nodes() -> None:
    assert set(dir(Builder())) & set(all_ops()) == {"add"}


def test_composites_that_have_the_name_of_a_primitive() -> None:
    same = {
        "argmax", "argmin", "argsort", "cast", "concat", "cumsum", "einsum", "pad", "reshape",
        "stack", "transpose", "join_replicas", "per_replica", "replica_count", "replica_sum",
    }  # fmt: skip
    assert set(COMPOSITES) & set(all_ops()) == same


@pytest.mark.parametrize("name", COMPOSITES)
def test_composite_says_its_result_first(name: str) -> None:
    first = (COMPOSITES[name].__doc__ or "").splitlines()[0]
    assert first.startswith(("`", "The ")), f"{name}: {first}"


def test_a_composite_is_defined_once_and_has_a_docstring() -> None:
    def softmax(f: Builder, x: Value) -> Value:
        """`y = x`"""
        return x

    def silent(f: Builder, x: Value) -> Value:
        return x

    with pytest.raises(AssertionError, match="composite softmax is defined twice"):
        composite(softmax)
    with pytest.raises(AssertionError, match="composite silent has no docstring"):
        composite(silent)


def test_unknown_name_is_an_error_that_names_a_close_one() -> None:
    with pytest.raises(GraphcError, match="there is no op 'tanhh'") as error:
        Builder().tanhh(1.0)
    assert error.value.help == "did you mean 'tanh'?"


def test_a_variable_is_read_by_one_node() -> None:
    from graphc.ir.graph import Variable

    f = Builder()
    first = f.declare(Variable("w", TensorType((2,), F32)))
    assert f.read("w").name == first.name == f.declare(f.variables["w"]).name
    assert len(f.nodes) == 1
    copy = Builder.like(f.build(), keep_nodes=True)
    assert copy.read("w").name == first.name


def test_a_name_that_became_free_is_not_varying() -> None:
    f = Builder()
    (x,) = inputs(f, [A])
    own = f.per_replica(x)
    z = f.rename(own - 1.0, "z")
    total = f.replica_sum(f.sum(z))
    again = total - 1.0
    assert again.name == "sub" and f.is_varying(z) and not f.is_varying(again)
