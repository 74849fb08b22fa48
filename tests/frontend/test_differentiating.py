"""graphc.grad, value_and_grad, vjp and stop_gradient in traced functions.

The wanted numbers were computed with JAX 0.10.2 in float64, from the same functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.frontend.numpy.trace import record
from graphc.support.errors import GraphcError
from graphc.testing.compute import evaluate

W = np.cos(np.arange(12.0)).reshape(3, 4)
V = np.sin(np.arange(4.0) + 1)
X = np.linspace(-1, 1, 6).reshape(2, 3)
PARAMS = {"w": W, "layers": [V, np.float64(0.5)]}


def model(p: Any, x: Any) -> Any:
    return np.tanh(x @ p["w"]) @ p["layers"][0] * p["layers"][1]


def mean_square(p: Any, x: Any) -> Any:
    return np.mean(model(p, x) ** 2)


def computed(function: Callable[[Any, Any], Any], params: Any = PARAMS, x: Any = X) -> Any:
    """What a function of (params, x) gives, node by node; leaves by name."""
    traced = record(lambda p, b: {"y": function(p, b["x"])}, params, {"x": x})
    values = evaluate(traced.graph, {"x": x, **traced.values})
    return {name.removeprefix("y."): values[at] for name, at in traced.graph.outputs.items()}


def wrong(function: Callable[[Any, Any], Any]) -> GraphcError:
    with pytest.raises(GraphcError) as caught:
        computed(function)
    assert caught.value.span is not None and caught.value.span.file == __file__
    return caught.value


# -- the values of JAX ----------------------------------------------------------------------------

MEAN_SQUARE = {
    "w": [
        [0.152843252043599, 0.185572228629708, 0.037663526493843, -0.143311631599075],
        [-0.000530536728428, 0.034829911855805, 0.007215929270425, 0.000847876421341],
        [-0.153904325500456, -0.115912404918098, -0.023231667952993, 0.145007384441758],
    ],
    "layers.0": [0.246061944384049, 0.294219412481748, 0.082595938595762, -0.217861830457505],
    "layers.1": 1.302242515598697,
}
BY_X = [
    [-0.468121185571004, 0.156345298030403, 0.263732972151818],
    [-0.444044739693271, 0.18600271084068, 0.200885768884572],
]
PRODUCTS_W = [
    [-0.456683602529533, -0.472940845454034, -0.095649915021335, 0.429009295946296],
    [-0.635145900945217, -0.583339361460306, -0.117616194225914, 0.597392175078513],
    [-0.813608199360902, -0.693737877466578, -0.139582473430492, 0.76577505421073],
]
PRODUCTS_X = [
    [1.249410396697817, -2.915813901584463e-04, 0.5777925943652683],
    [-1.238579047881497, 0.9782608868199753, 1.786532881892789],
]
HESSIAN = [
    [0.094523488039516, 0.108696810021471, 0.026065359207684, -0.084575696901953],
    [0.108696810021471, 0.136986144552226, 0.045671222395645, -0.094804032924897],
    [0.026065359207684, 0.045671222395645, 0.027737703136381, -0.020110432132225],
    [-0.084575696901953, -0.094804032924897, -0.020110432132225, 0.076176794231174],
]
PENALTY = {
    "w": [
        [0.017504247088246, 0.004518312281709, -0.005055083104503, -0.012774838084832],
        [0.031342072939976, 0.027824616617761, 0.00139498757683, -0.026563988434699],
        [0.025125045268737, 0.025436838113684, 0.002624648184192, -0.021562231675197],
    ],
    "layers.0": [-0.030408139423204, -0.026818106281321, 0.007981281387749, 0.030107269689995],
    "layers.1": -0.143264280790183,
}


def agrees(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert found.keys() == wanted.keys()
    for name, x in wanted.items():
        np.testing.assert_allclose(found[name], x, rtol=1e-12, atol=1e-14)


def test_a_gradient_is_a_tree_like_the_argument() -> None:
    agrees(computed(graphc.grad(mean_square)), MEAN_SQUARE)


def test_argnums_says_which_arguments() -> None:
    agrees(computed(graphc.grad(mean_square, argnums=1)), {"y": BY_X})
    agrees(computed(graphc.grad(mean_square, argnums=-1)), {"y": BY_X})
    both = computed(graphc.grad(mean_square, argnums=(1, 0)))
    agrees(both, {"0": BY_X} | {f"1.{name}": g for name, g in MEAN_SQUARE.items()})


def test_the_value_comes_along_and_what_else_the_function_returns() -> None:
    def function(p: Any, x: Any) -> Any:
        with_sum = graphc.value_and_grad(lambda p, x: (mean_square(p, x), {"sum": np.sum(x)}),
                                         argnums=1, has_aux=True)  # fmt: skip
        (loss, aux), slope = with_sum(p, x)
        same, other = graphc.grad(lambda x: (mean_square(p, x), loss), has_aux=True)(x)
        return {"loss": loss, "slope": slope, "same": same, "other": other, **aux}

    loss = 0.325560628899674
    wanted = {"loss": loss, "slope": BY_X, "same": BY_X, "other": loss, "sum": np.sum(X)}
    agrees(computed(function), wanted)


def test_products_with_the_jacobian() -> None:
    def function(p: Any, x: Any) -> Any:
        out, products = graphc.vjp(lambda p, x: {"a": model(p, x), "b": np.sum(x, axis=0)}, p, x)
        by_p, by_x = products({"a": np.array([1.0, -2.0]), "b": np.array([0.5, 0.25, 1.0])})
        return {"w": by_p["w"], "x": by_x, "out": out["b"]}

    agrees(computed(function), {"w": PRODUCTS_W, "x": PRODUCTS_X, "out": np.sum(X, axis=0)})


def test_a_hessian_is_the_jacobian_of_a_gradient() -> None:
    def hessian(p: Any, x: Any) -> Any:
        def by_v(v: Any) -> Any:
            return mean_square({**p, "layers": [v, p["layers"][1]]}, x)

        _, products = graphc.vjp(graphc.grad(by_v), p["layers"][0])
        return np.stack([products(row)[0] for row in np.eye(4)])

    agrees(computed(hessian), {"y": HESSIAN})


def test_a_third_derivative() -> None:
    def third(p: Any, x: Any) -> Any:
        def by_t(t: Any) -> Any:
            return np.tanh(t) * np.exp(t)

        return graphc.grad(graphc.grad(graphc.grad(by_t)))(0.3) + 0 * np.sum(x)

    agrees(computed(third), {"y": 0.098366583315046})


def test_the_gradient_of_a_gradient_penalty() -> None:
    def penalty(p: Any, x: Any) -> Any:
        slope = graphc.grad(lambda x: np.sum(model(p, x)))(x)
        return np.mean((np.sqrt(np.sum(slope**2, axis=1)) - 1) ** 2)

    agrees(computed(graphc.grad(penalty)), PENALTY)


# -- what is an argument, and what is not -----------------------------------------------------------


def test_what_a_function_reads_from_outside_is_constant_to_it() -> None:
    """As in JAX: x is the argument once, and once a constant."""
    found = computed(lambda p, x: graphc.grad(lambda a: np.sum(a * x))(x))
    np.testing.assert_array_equal(found["y"], X)


def test_stop_gradient_takes_trees_and_leaves_all_else_alone() -> None:
    def function(p: Any, x: Any) -> Any:
        def stopped(p: Any) -> Any:
            q = graphc.stop_gradient({"p": p, "n": 3, "none": None})
            assert q["n"] == 3 and q["none"] is None
            return np.sum(q["p"]["w"] * p["w"])

        return graphc.grad(stopped)(p)

    found = computed(function)
    np.testing.assert_array_equal(found["w"], W)
    np.testing.assert_array_equal(found["layers.0"], 0 * V)


def test_an_argument_that_is_not_used_has_the_gradient_zero() -> None:
    found = computed(lambda p, x: graphc.grad(lambda x, u: np.sum(x), argnums=(0, 1))(x, 2.0))
    np.testing.assert_array_equal(found["0"], np.ones((2, 3)))
    assert found["1"] == 0


def test_a_gradient_has_the_dtype_and_the_dataclass_of_its_argument() -> None:
    @dataclass
    class Pair:
        a: Any
        b: Any

    def function(p: Any, x: Any) -> Any:
        pair = Pair(p["half"], x)
        slope = graphc.grad(lambda pair: np.sum(pair.a * pair.b))(pair)
        assert isinstance(slope, Pair) and slope.a.dtype == np.float16
        return slope

    found = computed(function, {"half": np.ones(3, np.float16)})
    assert found["a"].dtype == np.float16 and found["b"].dtype == np.float32


def test_arguments_by_name_are_handed_on() -> None:
    found = computed(lambda p, x: graphc.grad(lambda x, scale: np.sum(x) * scale)(x, scale=3.0))
    np.testing.assert_array_equal(found["y"], np.full((2, 3), 3.0))


def test_predictions_may_be_gradients_of_each_example() -> None:
    def loss(p: Any, b: Any) -> Any:
        graphc.report("slope", graphc.grad(lambda x: np.sum(model(p, x)))(b["x"]))
        return np.mean((model(p, b["x"]) - b["y"]) ** 2)

    x = np.linspace(-1, 1, 33).reshape(11, 3)
    batch, sgd = {"x": x[:8], "y": np.zeros(8)}, graphc.optim.sgd(0.1)
    options: dict[str, Any] = {"strategy": "mirrored(2)", "backend": "reference"}
    with graphc.compile(loss, PARAMS, batch, optimizer=sgd, **options) as trainer:
        found = trainer.predict([{"x": x[:8]}, {"x": x[8:]}])
    wanted = (1 - np.tanh(x @ W) ** 2) * V @ W.T / 2
    np.testing.assert_allclose(found["slope"], wanted, rtol=1e-12)


# -- mistakes -------------------------------------------------------------------------------------


def test_a_loss_per_example_has_no_gradient_and_the_message_says_what_to_write() -> None:
    error = wrong(lambda p, x: graphc.grad(lambda x: model(p, x))(x))
    assert error.code == "G0301" and "not of f64[batch=2]" in error.message
    assert "graphc.vjp" in str(error.help)


def test_a_tuple_without_has_aux() -> None:
    for aux in (X, 1.0):
        error = wrong(lambda p, x, aux=aux: graphc.grad(lambda x: (np.sum(x), aux))(x))
        assert error.code == "G0301" and "has_aux=True" in str(error.help)


def test_there_is_no_gradient_by_integers() -> None:
    error = wrong(lambda p, x: graphc.grad(lambda i: np.sum(x[i]))(np.array([1, 0])))
    assert error.code == "G0316" and "no gradient by i64" in error.message


def test_there_is_no_gradient_by_what_is_not_an_array() -> None:
    error = wrong(lambda p, x: graphc.grad(lambda d: np.sum(d["x"]))({"x": x, "mode": "a"}))
    assert error.code == "G0316" and "'mode' is a str" in error.message


def test_argnums_beyond_the_arguments() -> None:
    error = wrong(lambda p, x: graphc.grad(lambda x: np.sum(x), argnums=1)(x))
    assert error.code == "G0316" and "1 positional argument" in error.message


def test_a_value_in_the_place_of_a_function() -> None:
    error = wrong(lambda p, x: graphc.grad(np.sum(x))(x))
    assert error.code == "G0316" and "takes a function, not a traced array" in error.message
    assert "takes a function, not a float" in wrong(lambda p, x: graphc.vjp(1.0, x)).message


def test_cotangents_that_do_not_fit() -> None:
    def form(p: Any, x: Any) -> Any:
        return graphc.vjp(lambda x: {"a": x}, x)[1]({"b": x})

    def shape(p: Any, x: Any) -> Any:
        return graphc.vjp(lambda x: x, x)[1](np.ones(3))

    assert "has a" in wrong(form).message
    assert "f64[3], the result is f64[batch=2,3]" in wrong(shape).message


def test_outside_of_a_step() -> None:
    with pytest.raises(GraphcError, match=r"graphc.grad\(\) is called outside") as caught:
        graphc.grad(np.sum)(X)
    assert caught.value.code == "G0807"
