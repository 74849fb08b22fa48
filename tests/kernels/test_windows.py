"""Convolutions: their gradients are products that read what is large forwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernels.compiled import check, kernels_of, program_of

from graphc import nn
from graphc.kernels.code import Product
from graphc.program import Program

CASES = [  # size, channels, taps, stride, dtype
    ((7, 9), (2, 3), (3, 2), 1, np.float32),
    ((8, 8), (9, 17), (3, 3), 1, np.float64),
    ((6, 5), (1, 8), (1, 5), 1, np.float64),
    ((9, 7), (3, 4), (3, 3), 2, np.float32),
]


def convolved(case: Any) -> tuple[Program, dict[str, Any], dict[str, Any]]:
    size, (given, made), taps, stride, dtype = case
    r = np.random.default_rng(5)
    params = {
        "a": (r.normal(size=(*taps, given, made)) * 0.3).astype(dtype),
        "b": (r.normal(size=(*taps, made, made)) * 0.3).astype(dtype),
    }
    batch = {"x": r.normal(size=(2, *size, given)).astype(dtype)}

    def loss(p: Any, d: Any) -> Any:
        y = np.tanh(nn.conv2d(d["x"], p["a"]))
        return np.mean(nn.conv2d(y, p["b"], stride=stride) ** 2)

    return program_of(loss, params, batch), params, batch


@pytest.mark.parametrize("case", CASES)
def test_convolutions_are_what_their_ops_give(case: Any) -> None:
    check(*convolved(case))


def test_the_gradient_of_what_is_convolved_is_read_forwards() -> None:
    program, _, _ = convolved(CASES[1])
    products = [k for k in kernels_of(program) if isinstance(k, Product)]
    windows = [k for k in products if len(k.inner) == 3 and k.rows[-1] == 8]
    assert len(windows) == 3  # forward twice, and one gradient of what is given
    for k in windows:
        assert min(k.left.inner) > 0 and k.right.cols == (1,)
