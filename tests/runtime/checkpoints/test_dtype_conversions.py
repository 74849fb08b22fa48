"""Weights in another dtype than that of the variable: which may be converted, and to what."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from runtime.checkpoints.values import same

from graphc.runtime.checkpoints.dtype_conversions import in_dtype, is_kept, is_of_kind
from graphc.runtime.checkpoints.tensor_files import DTYPES

BF16, F16, F32, F64 = (DTYPES[name] for name in ("BF16", "F16", "F32", "F64"))
PATTERNS = np.arange(1 << 16, dtype=np.uint16)


def test_every_value_of_bf16_becomes_the_same_one_in_f32() -> None:
    found = np.asarray(in_dtype(PATTERNS.view(BF16), F32))
    assert same(found.view(np.uint32), PATTERNS.astype(np.uint32) << 16)


def test_every_value_of_f16_becomes_the_same_one_in_f32() -> None:
    want = struct.unpack(f"<{PATTERNS.size}e", PATTERNS.astype("<u2").tobytes())
    found = np.asarray(in_dtype(PATTERNS.view(F16), F32))
    with np.errstate(invalid="ignore"):  # of signaling NaNs
        assert np.array_equal(found.astype(np.float64), np.array(want), equal_nan=True)
    assert np.array_equal(np.signbit(found), PATTERNS >> 15 == 1)


@pytest.mark.parametrize("one", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("other", (BF16, F16, F32, F64, DTYPES["I32"], DTYPES["I64"]), ids=str)
def test_what_is_kept_comes_back_and_what_is_not_does_not(one: Any, other: Any) -> None:
    """All values of a dtype of up to two bytes, random patterns of a wider one."""
    if not is_of_kind(one, other):
        return
    random = np.random.default_rng(0).integers(0, 256, 64 * one.itemsize, np.uint8)
    every = PATTERNS.astype(f"u{one.itemsize}") if one.itemsize < 3 else random
    values = every.view(one)
    with np.errstate(all="ignore"):
        want = values.astype(other)
        back = want.astype(one)
        kept = (back == values) | ((values != values) & (back != back))
    assert is_kept(values, other) == kept.all()
    assert is_kept(values[kept], other)
    assert not kept.all() or same(in_dtype(values, other), want)


def test_a_wider_dtype_is_taken_if_the_values_are_those_of_a_narrower_one() -> None:
    few = np.array([0.5, -0.0, np.nan, np.inf, 1 / 128], F32)
    assert is_kept(few, BF16) and is_kept(few, F16)
    assert not is_kept(np.array([0.1], F32), BF16)
    assert is_kept(np.array([0.1], F32), BF16, rounded=True)
    assert is_kept(np.array([7], np.int64), DTYPES["I32"])
    assert not is_kept(np.array([1 << 40], np.int64), DTYPES["I32"], rounded=True)


def test_rounding_makes_no_number_infinite() -> None:
    assert not is_kept(np.array([1e6], F32), F16, rounded=True)
    assert is_kept(np.array([1e6, np.inf], F32), BF16, rounded=True)


@pytest.mark.parametrize(("one", "other"), [("I32", "F32"), ("F32", "I64"), ("BOOL", "U8")])
def test_integers_are_not_taken_for_floats(one: str, other: str) -> None:
    assert not is_of_kind(DTYPES[one], DTYPES[other])
