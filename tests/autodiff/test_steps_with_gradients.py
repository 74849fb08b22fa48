"""Steps whose losses contain gradients: the same training under every strategy, short batches too."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import graphc

STRATEGIES = [
    "mirrored(2) * accumulate(2)",
    *(
        pytest.param(strategy, marks=pytest.mark.ci)
        for strategy in (
            "mirrored(2)",
            "accumulate(2)",
            "zero(2, stage=3)",
            "tensor_split(2)",
            "central_storage(2) * reproducible(4)",
        )
    ),
]
draw = np.random.default_rng(0)


def network(p: Any, x: Any) -> Any:
    for w, b in p[:-1]:
        x = np.tanh(x @ w + b)
    return x @ p[-1][0] + p[-1][1]


def layers(*sizes: int) -> Any:
    return [[draw.standard_normal((n, m)) / np.sqrt(n), np.zeros(m)] for n, m in pairwise(sizes)]


# -- a boundary value problem: u'' = f on [0, 1], u = 0 at both ends --------------------------------


def residual(p: Any, b: Any) -> Any:
    def u(x: Any) -> Any:
        return np.sum(network(p, x[:, None])[:, 0] * x * (1 - x))

    slope = graphc.grad(u)
    bend = graphc.grad(lambda x: np.sum(slope(x)))(b["x"])
    force = -(np.pi**2) * np.sin(np.pi * b["x"])
    graphc.report("error", np.mean((u_of(p, b["x"]) - np.sin(np.pi * b["x"])) ** 2))
    return np.mean((bend - force) ** 2)


def u_of(p: Any, x: Any) -> Any:
    return network(p, x[:, None])[:, 0] * x * (1 - x)


# -- a critic whose slope is held near 1 (Gulrajani et al., 2017) ----------------------------------


def critic_loss(p: Any, b: Any) -> Any:
    between = b["t"][:, None] * b["real"] + (1 - b["t"][:, None]) * b["fake"]
    slope = graphc.grad(lambda x: np.sum(network(p, x)))(between)
    graphc.report("slopes", np.sqrt(np.sum(slope**2, axis=1)))
    penalty = np.mean((np.sqrt(np.sum(slope**2, axis=1) + 1e-12) - 1) ** 2)
    return np.mean(network(p, b["fake"])) - np.mean(network(p, b["real"])) + 10 * penalty


# -- the slope of the loss by the weights is a part of the loss: it is a mean over the batch ---------


def flat_minimum(p: Any, b: Any) -> Any:
    def fit(p: Any) -> Any:
        return np.mean((network(p, b["real"])[:, 0] - b["t"]) ** 2)

    loss, slope = graphc.value_and_grad(fit)(p)
    graphc.report("slope", slope[0][0])
    return loss + 0.1 * sum(np.sum(g**2) for layer in slope for g in layer)


# -- weights that are rounded, with the gradient of the identity (Bengio et al., 2013) --------------


@graphc.custom_gradient
def rounded(w: Any) -> Any:
    return np.round(w * 4) / 4, lambda g: g * (np.abs(w) <= 1.0)


def quantized(p: Any, b: Any) -> Any:
    q = [[rounded(w), bias] for w, bias in p]
    return np.mean((network(q, b["real"])[:, 0] - b["t"]) ** 2)


def batch(n: int) -> dict[str, Any]:
    x = draw.uniform(size=n)
    pairs = draw.standard_normal((2, n, 3))
    return {"x": x, "t": draw.uniform(size=n), "real": pairs[0] + 1, "fake": pairs[1]}


BATCHES = [batch(8), batch(8), batch(5)]
STEPS: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
    "residual": (residual, layers(1, 8, 1)),
    "critic": (critic_loss, layers(3, 6, 1)),
    "flat_minimum": (flat_minimum, layers(3, 6, 1)),
    "quantized": (quantized, layers(3, 6, 1)),
}


FEW, MORE = ("critic", "flat_minimum"), ("residual", "quantized")


def trained(name: str, strategy: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    loss, params = STEPS[name]
    sgd = graphc.optim.sgd(0.01)
    with graphc.compile(loss, params, BATCHES[0], optimizer=sgd, strategy=strategy) as trainer:
        return [trainer.step(b) for b in BATCHES], trainer.variables("param")


@pytest.mark.one_in(1)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", [*FEW, *(pytest.param(x, marks=pytest.mark.ci) for x in MORE)])
def test_a_step_with_gradients_in_its_loss_trains_as_on_one_device(
    name: str, strategy: str
) -> None:
    alone, params = trained(name, "one_device()")
    together, others = trained(name, strategy)
    for a, b in zip(alone, together, strict=True):
        for key, x in a.items():
            np.testing.assert_allclose(b[key], x, rtol=1e-9, atol=1e-12, err_msg=key)
    for key, x in params.items():
        np.testing.assert_allclose(others[key], x, rtol=1e-9, atol=1e-12, err_msg=key)


@pytest.mark.ci
@pytest.mark.parametrize("name", STEPS)
def test_reproducible_strategies_have_the_bits_of_one_device(name: str) -> None:
    alone, params = trained(name, "one_device() * reproducible(4)")
    for strategy in (
        "mirrored(2) * reproducible(4)",
        "mirrored(2) * accumulate(2) * reproducible(4)",
    ):
        together, others = trained(name, strategy)
        for a, b in zip(alone, together, strict=True):
            for key, x in a.items():
                np.testing.assert_array_equal(b[key], x, err_msg=f"{strategy}: {key}")
        for key, x in params.items():
            np.testing.assert_array_equal(others[key], x, err_msg=f"{strategy}: {key}")


@pytest.mark.ci
def test_the_boundary_value_problem_is_solved() -> None:
    x = (np.arange(64) + 0.5) / 64
    params, adam = layers(1, 16, 1), graphc.optim.adam(1e-2)
    with graphc.compile(residual, params, {"x": x}, optimizer=adam) as trainer:
        first = trainer.step({"x": x})
        for _ in range(600):
            last = trainer.step({"x": x})
    assert last["loss"] < 1e-3 * first["loss"]
    assert last["error"] < 1e-4, "u is sin(pi x)"


# -- a judge that is not ours -----------------------------------------------------------------------

PROJECTED = {  # the loss, and each gradient times cos(0, 1, 2, ...): of PyTorch 2.13, in f64
    "c": -5.838990585011303, "s": -3.465493551687013, "b": 2.1092000894716145,
    "q": -17.338408910815218, "k": -13.847838702129083, "v": -4.460972338552015,
    "o": -20.958963304590668, "e": 2.4174132313227346,
}  # fmt: skip


def network_of_all_sorts(p: Any, x: Any, ids: Any) -> Any:
    nn = graphc.nn
    h = nn.max_pool(nn.gelu(nn.conv2d(x, p["c"])), 2).reshape(x.shape[0], 16, 4)
    h = nn.layer_norm(h, p["s"], p["b"]) + nn.embedding(p["e"], ids)
    return np.mean(nn.attention(h @ p["q"], h @ p["k"], h @ p["v"]), axis=1) @ p["o"]


@pytest.mark.ci
@pytest.mark.parametrize("strategy", ["one_device()", "mirrored(2) * accumulate(2)"])
def test_the_gradient_of_gradients_of_a_network_is_that_of_pytorch(strategy: str) -> None:
    """loss + 10 |its slope by the images|² + the sum over params of |its slope by them|²"""

    def loss(p: Any, b: Any) -> Any:
        def entropy(p: Any, x: Any) -> Any:
            logits = network_of_all_sorts(p, x, b["ids"])
            return np.mean(graphc.nn.cross_entropy(logits, b["y"]))

        value, (by_p, by_x) = graphc.value_and_grad(entropy, argnums=(0, 1))(p, b["x"])
        return value + 10 * np.sum(by_x**2) + sum(np.sum(g**2) for g in by_p.values())

    rng = np.random.default_rng(0)
    n = lambda *shape: rng.standard_normal(shape)  # noqa: E731
    params = {
        "c": n(3, 3, 2, 4) * 0.3, "s": 1 + 0.1 * n(4), "b": 0.1 * n(4), "q": n(4, 8) * 0.5,
        "k": n(4, 8) * 0.5, "v": n(4, 8) * 0.5, "o": n(8, 5) * 0.5, "e": n(7, 4),
    }  # fmt: skip
    images, labels = n(4, 8, 8, 2), rng.integers(0, 5, 4)
    batch = {"x": images, "y": labels, "ids": rng.integers(0, 7, (4, 16))}
    sgd = graphc.optim.sgd(1.0)
    with graphc.compile(loss, params, batch, optimizer=sgd, strategy=strategy) as trainer:
        assert trainer.step(batch)["loss"] == pytest.approx(7.860308281590739, rel=1e-12)
        for name, w in trainer.params.items():
            slope = params[name] - w
            found = np.sum(slope * np.cos(np.arange(slope.size)).reshape(slope.shape))
            assert found == pytest.approx(PROJECTED[name], rel=1e-11), name
