"""Gradients of the composites that networks are made of, against central differences in f64."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from derivative_checks import check_gradients

from graphc.ir.builder import Builder

RNG = np.random.default_rng(1)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape)


def positive(*shape: int) -> np.ndarray:
    return RNG.uniform(0.3, 2, shape)


IDS = np.array([[0, 2], [2, 1]])
LABELS = np.array([2, 0, 1])
SOFT = np.array([[0.2, 0.3, 0.5, 0.0], [1, 0, 0, 0], [0.25] * 4])
MASK = np.array([[True, False, True], [True, True, True]])

CASES: list[tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = [
    *[
        (lambda f, x, n=n: getattr(f, n)(x), (normal(3, 4),))
        for n in (
            "softmax", "log_softmax", "logsumexp", "gelu", "silu", "sigmoid", "softplus", "elu",
            "log_sigmoid", "norm", "var", "std", "prod", "sinh", "cosh", "arctan", "arcsinh",
            "layer_norm", "rms_norm", "median", "sort",
        )
    ],
    *[
        (lambda f, x, n=n: getattr(f, n)(x), (RNG.uniform(-0.8, 0.8, (4,)),))
        for n in ("arcsin", "arccos", "arctanh", "tan")
    ],
    (lambda f, x: f.gelu(x, approximate=True), (normal(5),)),
    (lambda f, x: x**3 + x**2.5 + 2.0**x + 1 / x, (positive(4),)),
    (lambda f, x, y: f.where(f.gt(x, 0), x * y, y), (normal(3, 4), normal(4))),
    (lambda f, x: f.clip(x, -0.5, 0.5), (normal(3, 4),)),
    (lambda f, x: f.prod(x, axis=1), (np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 1.0]]),)),
    (lambda f, x, y: f.matmul(x, y), (normal(2, 3, 4), normal(4, 5))),
    (lambda f, x, y: f.matmul(x, y), (normal(2, 1, 3, 2), normal(3, 2, 2))),
    (
        lambda f, x, y, z: f.einsum("bi,bo,io->b", x, y, z),
        (normal(2, 3), normal(2, 2), normal(3, 2)),
    ),
    (lambda f, x: f.einsum("iij->j", x), (normal(3, 3, 2),)),
    (lambda f, x: f.pad(x, ((1, 0), (0, 2)), 3.0), (normal(2, 3),)),
    (lambda f, x: f.tile(f.repeat(f.roll(x, 1, 0), 2, 1), (2, 1)), (normal(3, 2),)),
    (lambda f, x: f.getitem(x, (slice(None, None, -2), None, 1)), (normal(4, 3),)),
    (lambda f, x, i: f.getitem(x, (i, slice(None))), (normal(3, 2), IDS)),
    (lambda f, x, i: f.getitem(x, (i, i)), (normal(3, 3), IDS)),
    (lambda f, x, i: f.embedding(x, i), (normal(3, 2), IDS)),
    (lambda f, x: f.cumsum(x, 1), (normal(2, 3),)),
    (lambda f, x, y: f.cross_entropy(x, y), (normal(3, 4), LABELS)),
    (lambda f, x, y: f.cross_entropy(x, y), (normal(3, 4), SOFT)),
    (lambda f, x, y: f.sigmoid_cross_entropy(x, y), (normal(3, 4), SOFT)),
    (lambda f, x, y: f.binary_cross_entropy(f.sigmoid(x), y), (normal(3, 4), SOFT)),
    (lambda f, x, y: f.mse(x, y), (normal(3, 4), normal(3, 4))),
    (lambda f, x, y: f.huber(x, y), (normal(3, 4), 3 * normal(3, 4))),
    (lambda f, x, s, b: f.layer_norm(x, s, b), (normal(3, 4), normal(4), normal(4))),
    (lambda f, x, s, b: f.batch_norm(x, s, b), (normal(4, 3), normal(3), normal(3))),
    (lambda f, x, w, b: f.conv2d(x, w, b), (normal(1, 3, 4, 2), normal(3, 3, 2, 2), normal(2))),
    (
        lambda f, x, w: f.conv2d(x, w, stride=2, dilation=2, padding=1, groups=2),
        (normal(1, 5, 5, 2), normal(2, 2, 1, 4)),
    ),
    (lambda f, x, w: f.conv1d(x, w, stride=2), (normal(1, 5, 2), normal(3, 2, 2))),
    (lambda f, x: f.max_pool(x), (normal(1, 4, 4, 2),)),
    (lambda f, x: f.max_pool(x, 3, 2, "same"), (normal(1, 4, 4, 1),)),
    (lambda f, x: f.avg_pool(x, 3, 2, "same"), (normal(1, 4, 4, 1),)),
    (lambda f, x: f.global_avg_pool(x), (normal(2, 3, 2, 2),)),
    (lambda f, q, k, v: f.attention(q, k, v), (normal(2, 2, 3), normal(2, 3, 3), normal(2, 3, 2))),
    (
        lambda f, q, k, v, m: f.attention(q, k, v, m),
        (normal(2, 3), normal(3, 3), normal(3, 2), MASK),
    ),
    (lambda f, x: f.causal_attention(x, x, x), (normal(3, 2),)),
    (
        lambda f, x, w, o: f.multi_head_attention(x, w, o, heads=2, causal=True),
        (normal(1, 3, 4), normal(4, 12), normal(4, 4)),
    ),
    (
        lambda f, *xs: f.lstm_cell(*xs),
        (normal(2, 3), normal(2, 2), normal(2, 2), normal(3, 8), normal(2, 8), normal(8)),
    ),
    (
        lambda f, *xs: f.gru_cell(*xs),
        (normal(2, 3), normal(2, 2), normal(3, 6), normal(2, 6), normal(6), normal(6)),
    ),
    (lambda f, x: f.std(x, axis=0, ddof=1), (normal(4, 2),)),
    (lambda f, x, y: f.global_norm([x, y]), (normal(3), normal(2, 2))),
    *[
        (lambda f, x, n=n: getattr(f, n)(x), (normal(3, 4),))
        for n in ("celu", "selu", "mish", "hard_swish", "glu", "normalize")
    ],
    (lambda f, x, w: f.conv3d(x, w, padding=(1, 0, 0)), (normal(1, 2, 2, 2, 1), normal(2, 1, 2, 1, 2))),
    (
        lambda f, x, w, b: f.conv_transpose2d(x, w, b, 2, 1, (1, 2), 2, 1),
        (normal(1, 2, 2, 2), normal(3, 2, 2, 1), normal(2)),
    ),
    (lambda f, x: f.avg_pool(x, 3, 2, 1, ceil_mode=True, count_include_pad=True), (normal(1, 6, 2),)),
    (lambda f, x: f.resize(x, (3, 2), "cubic"), (normal(1, 2, 3, 1),)),
    (lambda f, x: f.group_norm(x, 2), (normal(2, 3, 4),)),
    (lambda f, x: f.top_k(x, 2)[0], (normal(2, 4),)),
    (lambda f, x: f.rotary(x, interleaved=True), (normal(3, 4),)),
    (lambda f, x, y: f.cosine_similarity(x, y), (normal(3, 4), normal(3, 4))),
    (lambda f, x, y: f.kl_divergence(x, y), (positive(3, 4) / 4, positive(3, 4) / 4)),
]  # fmt: skip


@pytest.mark.parametrize("index", range(len(CASES)))
def test_gradient_is_the_central_difference(index: int) -> None:
    function, xs = CASES[index]
    order = 2 if sum(x.size for x in xs) < 40 else 1
    check_gradients(function, list(xs), order=order, tolerance=2e-6)


def test_a_wrong_gradient_is_caught() -> None:
    def wrong(f: Builder, x: Any) -> Any:
        return f.stop_gradient(x) * x

    with pytest.raises(AssertionError):
        check_gradients(wrong, [normal(3)])
