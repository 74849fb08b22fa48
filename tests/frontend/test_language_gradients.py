"""grad(y, x) in the .gc language: what it is, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc.compiler.driver import compile_module
from graphc.frontend.language.load import module_of_source
from graphc.strategies import parse_strategy
from graphc.support.errors import GraphcError
from graphc.testing.compute import evaluate

X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2)
STEP = """step s(x: f32[batch, 2], y: i32[batch]) {
    param w: f32[2] = ones()
    param layers[0]: f32[2] = ones()
    param layers[1]: f32[2] = ones()
%s
}
"""


def module(body: str) -> Any:
    lines = "\n".join(f"    {line.strip()}" for line in body.strip().splitlines())
    return module_of_source(STEP % lines, "test.gc", {"batch": 4})


def reports(body: str) -> dict[str, Any]:
    graph = module(body).evaluate
    feeds = {"x": X, "y": np.zeros(4, np.int32), "w": np.ones(2, np.float32)}
    feeds |= {f"layers.{i}": np.full(2, i + 2.0, np.float32) for i in range(2)}
    found = evaluate(graph, feeds)
    return {name: found[x] for name, x in graph.outputs.items()}


def failure(body: str) -> GraphcError:
    with pytest.raises(GraphcError) as caught:
        module(body)
    assert caught.value.span is not None
    return caught.value


def test_a_gradient_by_a_param_an_input_and_a_local_tensor() -> None:
    found = reports("""
        z = x * w
        l = sum(square(z))
        report by_w = grad(l, w)
        report by_x = grad(l, x)
        report by_z = grad(l, z)
    """)
    np.testing.assert_allclose(found["by_w"], 2 * (X**2).sum(0), rtol=1e-6)
    np.testing.assert_allclose(found["by_x"], 2 * X, rtol=1e-6)
    np.testing.assert_allclose(found["by_z"], 2 * X, rtol=1e-6)


def test_a_gradient_of_a_gradient_and_a_stopped_one() -> None:
    found = reports("""
        g = grad(sum(x * x * x), x)
        report second = grad(sum(g), x)
        report stopped = grad(sum(stop_gradient(g) * x), x)
    """)
    np.testing.assert_allclose(found["second"], 6 * X, rtol=1e-6)
    np.testing.assert_allclose(found["stopped"], 3 * X**2, rtol=1e-6)


def test_a_gradient_by_a_list() -> None:
    found = reports("""
        g = grad(mean(x * layers[0] * layers[1]), [layers[0], layers[1]])
        report first = g[0]
        report second = g[1]
    """)
    np.testing.assert_allclose(found["first"], X.sum(0) / 8 * 3, rtol=1e-5)
    np.testing.assert_allclose(found["second"], X.sum(0) / 8 * 2, rtol=1e-5)


def test_both_front_ends_build_the_same_training() -> None:
    body = """
        slope = grad(sum(tanh(x * w)), x)
        minimize mean(square(slope)) with sgd(0.5)
        report slope = slope
    """

    def loss(p: Any, b: Any) -> Any:
        slope = graphc.grad(lambda x: np.sum(np.tanh(x * p["w"])))(b["x"])
        graphc.report("slope", slope)
        return np.mean(slope**2)

    batch = {"x": X, "y": np.zeros(4, np.int32)}
    for strategy in ("one_device()", "mirrored(2) * accumulate(2)"):
        with pytest.warns(graphc.GraphcWarning, match="does not reach the loss"):
            plan = compile_module(module(body), parse_strategy(strategy))
        params = {"w": np.ones(2, np.float32)}
        sgd = graphc.optim.sgd(0.5)
        with (
            graphc.Trainer(plan) as one,
            graphc.compile(loss, params, batch, optimizer=sgd, strategy=strategy) as other,
        ):
            for _ in range(2):
                a, b = one.step(batch), other.step(batch)
                np.testing.assert_allclose(a["slope"], b["slope"], rtol=1e-6)
                np.testing.assert_allclose(a["loss"], b["loss"], rtol=1e-6)


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ("report g = grad(x * w, w)", "G0301", "of a float scalar, not of f32[batch=4,2]"),
        ("report g = grad(sum(x * w), y)", "G0316", "no gradient by i32"),
        ("report g = grad(sum(x * w), 2)", "G0316", "no gradient by what is not a tensor"),
        ("report g = grad(sum(x * w), x * 2)", "G0316", "does not depend on the tensor"),
        ("report g = grad(sum(x * w), [w, layers[1]])", "G0316", "does not depend on 'x.1'"),
        ("report g = grad(sum(x * w))", "G0121", "missing a required argument: 'x'"),
        ("report g = grad(1.0, w)", "G0121", "loss is the number 1.0, but it takes a tensor"),
    ],
)
def test_what_has_no_gradient(body: str, code: str, message: str) -> None:
    error = failure(body)
    assert error.code == code
    assert message in error.message
