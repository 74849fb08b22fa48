"""Composites that NumPy does not have give what their formula says, without overflow."""

from collections.abc import Callable
from math import erf
from typing import Any

import numpy as np
import pytest

from graphc.support.errors import GraphcError
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
    ("relu6", lambda x: np.clip(4 * x, 0, 6), {"scale": 4}),
    ("selu", lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)), {}),
    ("celu", lambda x: np.where(x > 0, x, 2 * np.expm1(x / 2)), {"alpha": 2.0}),
    ("mish", lambda x: x * np.tanh(np.log(1 + np.exp(x))), {}),
    ("hard_sigmoid", lambda x: np.clip(4 * x / 6 + 0.5, 0, 1), {"scale": 4}),
    ("hard_swish", lambda x: x * np.clip(x / 6 + 0.5, 0, 1), {}),
    ("glu", lambda x: x[..., :2] / (1 + np.exp(-x[..., 2:])), {}),
    ("normalize", lambda x: x / np.sqrt((x * x).sum(1, keepdims=True)), {"axis": 1}),
    ("instance_norm", lambda x: (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5), {}),
    ("global_max_pool", lambda x: x.max(1), {}),
    ("rms_norm", lambda x: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6), {}),
]  # fmt: skip


@pytest.mark.parametrize(
    "name, formula, options", FORMULAS, ids=[f"{n}-{o}" for n, _, o in FORMULAS]
)
def test_composite_is_its_formula(
    name: str, formula: Callable[[Array], Array], options: dict[str, Any]
) -> None:
    given = dict(options)
    scaled = C * given.pop("scale", 1)
    y = compute(lambda f, x: getattr(f, name)(x, **given), scaled)
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


# -- of several operands ---------------------------------------------------------------------------


def test_top_k_is_the_head_of_the_order_and_the_first_of_equals_comes_first() -> None:
    x = np.array([[1.0, 5.0, 5.0, 2.0], [0.0, -1.0, 0.0, -3.0]])
    values = compute(lambda f, v: f.top_k(v, 3)[0], x)
    ids = compute(lambda f, v: f.top_k(v, 3)[1], x)
    assert values.tolist() == [[5, 5, 2], [0, 0, -1]] and ids.tolist() == [[1, 2, 3], [0, 2, 1]]
    least = compute(lambda f, v: f.top_k(v, 2, largest=False)[1], x)
    assert least.tolist() == [[0, 3], [3, 1]]
    assert compute(lambda f, v: f.top_k(v, 1, axis=0)[1], x).tolist() == [[0, 0, 0, 0]]


def test_top_k_takes_nan_as_the_largest_and_counts_unsigned_numbers() -> None:
    x = np.array([1.0, np.nan, np.inf])
    assert compute(lambda f, v: f.top_k(v, 2)[1], x).tolist() == [1, 2]
    small = np.array([0, 255, 3], np.uint8)
    assert compute(lambda f, v: f.top_k(v, 3)[0], small).tolist() == [255, 3, 0]


def test_top_k_of_more_than_there_are_is_an_error() -> None:
    with pytest.raises(GraphcError, match="top_k: 5 of 4 entries"):
        compute(lambda f, v: f.top_k(v, 5), C)


@pytest.mark.parametrize("interleaved", [False, True])
def test_scores_of_rotated_vectors_depend_on_their_distance(interleaved: bool) -> None:
    q, k = np.random.default_rng(3).normal(size=(2, 1, 6))

    def rotated(x: Array, position: int) -> Array:
        at = np.array([position])
        return compute(lambda f, x, at: f.rotary(x, at, interleaved=interleaved), x, at)

    near, far = ((rotated(q, 3 + n) * rotated(k, 1 + n)).sum() for n in (0, 7))
    assert near == pytest.approx(far, abs=1e-5)
    assert rotated(q, 0) == pytest.approx(q) and rotated(q, 1) != pytest.approx(q)


def test_distances_of_distributions() -> None:
    p, q = np_softmax(C), np_softmax(C[::-1])
    found = compute(lambda f, a, b: f.kl_divergence(a, b), p, q)
    np.testing.assert_allclose(found, (p * np.log(p / q)).sum(-1), rtol=1e-12)
    found = compute(lambda f, a, b: f.cosine_similarity(a, b), p, q)
    norms = np.sqrt((p * p).sum(-1) * (q * q).sum(-1))
    np.testing.assert_allclose(found, (p * q).sum(-1) / norms, rtol=1e-12)
    found = compute(lambda f, a, b: f.hinge(a, b), C, np.sign(C[::-1]))
    np.testing.assert_allclose(found, np.maximum(1 - C * np.sign(C[::-1]), 0).mean(), rtol=1e-12)


def test_a_causal_convolution_sees_nothing_later() -> None:
    x, w = np.ones((1, 6, 1)), np.ones((3, 1, 1))
    y = compute(lambda f, x, w: f.conv1d(x, w, padding="causal", dilation=2), x, w)
    assert y.ravel().tolist() == [1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("size, stride", [(3, 2), (2, 3), (4, 4), (3, 1)])
def test_a_transposed_convolution_is_the_transpose(size: int, stride: int) -> None:
    """<conv(y), x> = <y, conv_transpose(x)>, for padding "same"."""
    rng = np.random.default_rng(size)
    x, w = rng.normal(size=(1, 3, 2)), rng.normal(size=(size, 2, 1))
    y = rng.normal(size=(1, 3 * stride, 1))
    back = compute(lambda f, x, w: f.conv_transpose1d(x, w, stride=stride), x, w)
    there = compute(lambda f, y, w: f.conv1d(y, f.transpose(w, (0, 2, 1)), stride=stride), y, w)
    assert back.shape == y.shape
    assert (there * x).sum() == pytest.approx((y * back).sum())


@pytest.mark.parametrize("method", ["nearest", "linear", "cubic"])
def test_a_resized_line_stays_a_line_and_constants_stay(method: str) -> None:
    line = np.arange(12.0).reshape(1, 12, 1)
    wide = compute(lambda f, x: f.resize(x, 24, method), line).ravel()
    at = (np.arange(24) + 0.5) / 2 - 0.5
    want = np.floor(at + 0.5) if method == "nearest" else at
    near = 0.05 if method == "cubic" else 1e-12
    np.testing.assert_allclose(wide[6:-6], want[6:-6], atol=near)
    image = np.full((2, 3, 5, 2), 7.0)
    other = compute(lambda f, x: f.resize(x, (4, 2), method), image)
    np.testing.assert_allclose(other, np.full((2, 4, 2, 2), 7.0), rtol=1e-12)


def test_aligned_corners_stay() -> None:
    x = np.array([1.0, 5.0, 2.0]).reshape(1, 3, 1)
    y = compute(lambda f, x: f.resize(x, 5, "linear", True), x).ravel()
    np.testing.assert_allclose(y, [1, 3, 5, 3.5, 2])
