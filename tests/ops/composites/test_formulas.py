"""Composites that NumPy does not have give what their formula says, without overflow."""

from collections.abc import Callable
from math import erf
from typing import Any

import numpy as np
import pytest

from graphc.testing.compute import compute

Array = np.ndarray
Formula = Callable[[Array], Array]
C = np.random.default_rng(0).normal(size=(2, 3, 4))


def np_softmax(x: Array, axis: int = -1) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(e / e.sum(axis, keepdims=True))


def centered(x: Array) -> Array:
    return np.asarray(x - x.mean(-1, keepdims=True))


np_erf = np.vectorize(erf)

FORMULAS: list[tuple[str, Formula, dict[str, Any]]] = [
    ("relu", lambda x: np.maximum(x, 0), {}),
    ("leaky_relu", lambda x: np.where(x > 0, x, 0.01 * x), {}),
    ("leaky_relu", lambda x: np.where(x > 0, x, 0.3 * x), {"slope": 0.3}),
    ("elu", lambda x: np.where(x > 0, x, np.exp(x) - 1), {}),
    ("sigmoid", lambda x: 1 / (1 + np.exp(-x)), {}),
    ("softplus", lambda x: np.log(1 + np.exp(x)), {}),
    ("log_sigmoid", lambda x: -np.log(1 + np.exp(-x)), {}),
    ("silu", lambda x: x / (1 + np.exp(-x)), {}),
    ("swish", lambda x: x / (1 + np.exp(-2 * x)), {"beta": 2.0}),
    ("gelu", lambda x: x / 2 * (1 + np_erf(x / np.sqrt(2))), {}),
    ("softmax", np_softmax, {}),
    ("softmax", lambda x: np_softmax(x, 1), {"axis": 1}),
    ("log_softmax", lambda x: np.log(np_softmax(x, 0)), {"axis": 0}),
    ("logsumexp", lambda x: np.log(np.exp(x).sum()), {}),
    ("logsumexp", lambda x: np.log(np.exp(x).sum(1, keepdims=True)), {"axis": 1, "keepdims": True}),
    ("norm", lambda x: np.sqrt((x * x).sum()), {}),
    ("norm", lambda x: np.abs(x).sum(-1), {"ord": 1, "axis": -1}),
    ("norm", lambda x: np.abs(x).max(), {"ord": np.inf}),
    ("layer_norm", lambda x: centered(x) / np.sqrt(x.var(-1, keepdims=True) + 1e-5), {}),
    ("rms_norm", lambda x: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6), {}),
]  # fmt: skip


@pytest.mark.parametrize(
    "name, formula, options", FORMULAS, ids=[f"{n}-{o}" for n, _, o in FORMULAS]
)
def test_composite_is_its_formula(
    name: str, formula: Callable[[Array], Array], options: dict[str, Any]
) -> None:
    y = compute(lambda f, x: getattr(f, name)(x, **options), C)
    np.testing.assert_allclose(y, formula(C), rtol=1e-12, atol=1e-12)


def test_tanh_approximation_of_gelu_is_near() -> None:
    exact = compute(lambda f, x: f.gelu(x), C)
    near = compute(lambda f, x: f.gelu(x, approximate=True), C)
    assert 0 < np.abs(exact - near).max() < 1e-3


@pytest.mark.parametrize(
    "name", ["sigmoid", "softplus", "log_sigmoid", "silu", "softmax", "logsumexp", "gelu", "elu"]
)
def test_nothing_overflows_at_large_arguments(name: str) -> None:
    x = np.array([[-1e4, 1e4], [1e4, 1e4]], np.float32)
    y = compute(lambda f, v: getattr(f, name)(v), x)
    assert np.isfinite(y).all()


def test_logsumexp_of_minus_infinity_is_minus_infinity() -> None:
    x = np.array([[-np.inf, -np.inf], [0, -np.inf]])
    assert compute(lambda f, v: f.logsumexp(v, -1), x).tolist() == [-np.inf, 0]


def test_small_sigmoids_keep_their_digits() -> None:
    y = compute(lambda f, v: f.sigmoid(v), np.array([-40.0]))
    np.testing.assert_allclose(y, np.exp(-40.0), rtol=1e-12)
