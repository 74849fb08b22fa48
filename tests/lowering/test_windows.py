"""Convolutions: their gradients are products that read what is large forwards."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from lowering.compiled import check, kernels_of, program_of

from graphc import nn
from graphc.lowering.kernel.code import Gemm
from graphc.lowering.program.program import Program

CASES = [  # size, channels, taps, stride, dtype
    ((7, 9), (2, 3), (3, 2), 1, np.float32),
    ((8, 8), (9, 17), (3, 3), 1, np.float64),
    ((6, 5), (1, 8), (1, 5), 1, np.float64),
    ((9, 7), (3, 4), (3, 3), 2, np.float32),
    ((9, 7), (3, 4), (4, 1), 2, np.float32),  # a row of the input that no window takes
    ((10, 8), (3, 4), (3, 5), (3, 2), np.float32),
    ((7, 8), (2, 3), (2, 1), (3, 1), np.float64),
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
    products = [k for k in kernels_of(program) if isinstance(k, Gemm)]
    windows = [k for k in products if len(k.inner) == 3 and k.rows[-1] == 8]
    assert len(windows) == 3  # forward twice, and one gradient of what is given
    for k in windows:
        assert min(k.left.inner) > 0 and k.right.cols == (1,)


def test_the_gradient_of_strided_windows_multiplies_no_zeros_between_them() -> None:
    program, _, _ = convolved(((8, 8), (9, 17), (3, 3), 2, np.float64))
    taps = [
        2,
        1,
    ]  # along a dim, for places with an even index, of which there are 5, and an odd one
    expected = sorted(
        2 * 17 * 17 * (5 - i) * (5 - j) * taps[i] * taps[j] for i in (0, 1) for j in (0, 1)
    )
    assert sorted(multiplied(program))[:4] == expected


def multiplied(program: Program) -> list[int]:
    """The multiplications of each product whose result has an entry for each place of an image."""
    products = [k for k in kernels_of(program) if isinstance(k, Gemm)]
    wide = [k for k in products if k.cols == (17,) and prod(k.rows) >= 2 * 16]
    return [prod(k.rows) * prod(k.inner) * 17 for k in wide]


# -- each channel by itself -----------------------------------------------------------------------


def depthwise(
    channels: int, stride: Any = 1, taps: tuple[int, int] = (3, 3)
) -> tuple[Program, dict[str, Any], dict[str, Any]]:
    r = np.random.default_rng(6)
    params = {
        "a": r.normal(size=(3, channels)).astype(np.float32),
        "b": (r.normal(size=(*taps, 1, channels)) * 0.3).astype(np.float32),
    }
    batch = {"x": r.normal(size=(2, 9, 8, 3)).astype(np.float32)}

    def loss(p: Any, d: Any) -> Any:
        y = np.tanh(d["x"] @ p["a"])
        return np.mean(nn.conv2d(y, p["b"], stride=stride, groups=channels) ** 2)

    return program_of(loss, params, batch), params, batch


@pytest.mark.one_in(2)
@pytest.mark.parametrize("channels", [4, 8, 24, 33])
@pytest.mark.parametrize("stride", [1, 2, (3, 1)])
@pytest.mark.parametrize("taps", [(3, 3), (1, 1), (2, 4)])
def test_depthwise_convolutions_are_what_their_ops_give(
    channels: int, stride: Any, taps: tuple[int, int]
) -> None:
    check(*depthwise(channels, stride, taps))


@pytest.mark.parametrize("stride", [1, 2])
def test_a_depthwise_convolution_has_its_lanes_along_the_channels(stride: int) -> None:
    program, _, _ = depthwise(32, stride)
    assert all(len(k.batch) == 0 for k in kernels_of(program) if isinstance(k, Gemm))


def test_few_channels_stay_a_product() -> None:
    program, _, _ = depthwise(4)
    assert any(k.batch == (4,) for k in kernels_of(program) if isinstance(k, Gemm))
