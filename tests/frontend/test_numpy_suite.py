"""Calls that NumPy's own tests and torch's samples make of these functions, and what they found."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.support.errors import GraphcError, GraphcWarning

cases = SimpleNamespace(**run_path(str(Path(__file__).with_name("numpy_cases.py"))))
check, traced, real = cases.check, cases.traced, cases.real


def test_more_degrees_of_freedom_than_entries_give_no_negative_covariance() -> None:
    x = real(2, 3)
    for ddof in (2, 3, 5):
        check(lambda v, d=ddof: np.cov(v, ddof=d), x)
    check(np.cov, real(2, 0))


def test_too_few_numbers_for_the_degrees_of_freedom_give_nan() -> None:
    x = real(3, 4)
    x[0, 1:] = x[1, 2:] = np.nan
    for ddof in (1, 2, 3):
        for function in (np.nanvar, np.nanstd):
            check(lambda v, d=ddof, f=function: f(v, axis=1, ddof=d), x)


def test_no_difference_at_all_leaves_out_the_ends() -> None:
    check(lambda v: np.diff(v, n=0, prepend=0.0, append=1.0), real(3, 4))


def test_coordinates_of_integers_do_not_wrap_around() -> None:
    x = real(3)
    for down in (np.array([3, 2, 1], np.uint8), np.array([-1, 2**31 - 1, 0], np.int32)):
        check(lambda v, d=down: np.gradient(v, d.astype(np.float64)), x)
        check(lambda v, d=down: np.gradient(v, d), x, rtol=1e-6)  # such coordinates are f32
        check(np.gradient, x, down, rtol=1e-6)


def test_odd_reflections_are_refused_while_tracing() -> None:
    """Else the step fails when it runs: -1 is no entry to look up."""
    check(lambda v: np.pad(v, 2, "reflect", reflect_type="even"), real(4))
    with pytest.raises(GraphcError, match="reflect_type='even' only"):
        traced(lambda v: np.pad(v, 2, "reflect", reflect_type="odd"), real(4))


def test_an_argument_that_is_not_known_is_named_and_no_traceback() -> None:
    for call in (lambda v: np.sort(v, 0, None, "a"), lambda v: np.sort(v, order="a")):
        with pytest.raises(GraphcError, match="can't be traced with these arguments"):
            traced(call, real(4))


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, bool, np.float64])
def test_an_integral_adds_integers_in_their_own_dtype(dtype: type) -> None:
    y = np.array([[1, 0, 1, 0], [200, 3, 255, 1]]).astype(dtype)
    x = np.array([0, 1, 3, 2]).astype(dtype)
    check(np.trapezoid, y)
    check(lambda y: np.trapezoid(y, dx=2, axis=0), y)
    check(np.trapezoid, y, x)
    check(np.trapezoid, y, real(4), rtol=1e-6)


def test_the_outer_product_keeps_the_sign_of_zeros() -> None:
    x, y = np.array([-0.0, 0.0, 1.0, -1.0]), np.array([0.0, -0.0, 2.0])
    for function in (np.outer, np.linalg.outer, np.multiply.outer):
        check(lambda x, y, f=function: 1 / f(x, y), x, y)  # inf or -inf


INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
    ("xp", "fp"),
    [
        ([0.0, 1.0, 2.0], [INF, 1.0, 2.0]), ([0.0, 1.0, 2.0], [1.0, -INF, -INF]),
        ([0.0, 1.0, 2.0], [1.0, 1.0, NAN]), ([-INF, 0.0, 1.0], [1.0, 2.0, INF]),
        ([0.0, 1.0, INF], [1.0, 2.0, 3.0]), ([-INF, INF], [1.0, 1.0]), ([-INF, INF], [1.0, 2.0]),
        ([0.0, 1.0, 1.0, 2.0], [1.0, 2.0, INF, INF]), ([0.0, 0.0], [1.0, 2.0]), ([0.0], [3.0]),
    ],
)  # fmt: skip
def test_lines_to_infinities_are_numpys(xp: list[float], fp: list[float]) -> None:
    x = np.array([-INF, -1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, INF, NAN])
    check(np.interp, x, np.array(xp), np.array(fp))
    check(lambda x, xp, fp: np.interp(x, xp, fp, -7.0, 7.0), x, np.array(xp), np.array(fp))


def test_points_of_a_period_may_come_in_any_order() -> None:
    x, xp, fp = real(9, low=-9, high=9), np.array([3.1, 0.2, -1.0, 7.0]), real(4)
    for period in (2.5, -2.5, 360):
        check(lambda x, xp, fp, p=period: np.interp(x, xp, fp, period=p), x, xp, fp)
    with pytest.raises(GraphcError, match="not a number other than 0"):
        traced(lambda x, xp, fp: np.interp(x, xp, fp, period=0), x, xp, fp)


SUMS: list[Any] = [np.sum, np.prod, np.cumsum, np.cumprod, np.nansum, np.nanprod, np.nancumsum,
                   np.nancumprod, np.trace, np.add.reduce, np.multiply.accumulate]  # fmt: skip


@pytest.mark.parametrize("function", SUMS)
def test_a_sum_is_of_the_dtype_that_is_asked_for(function: Any) -> None:
    for given in (np.float64, np.uint8):
        x = np.array([[200, 100, 3], [4, 5, 70], [1, 0, 2]]).astype(given)
        for dtype in (np.int32, np.uint8, bool):
            check(lambda v, d=dtype: function(v, dtype=d), x)
            (made,) = traced(lambda v, d=dtype: function(v, dtype=d), x)
            assert made.dtype == dtype
    check(lambda v: np.nansum(v, dtype=np.int64), np.array([NAN, 2.0, 1.5]))


@pytest.mark.parametrize("function", [np.mean, np.var, np.std, np.nanmean, np.nanvar, np.nanstd])
def test_a_mean_is_not_cut_to_an_integer(function: Any) -> None:
    check(lambda v: function(v, dtype=np.float64), np.arange(4))
    with pytest.raises(GraphcError, match="dtype=i64 would cut the result"):
        traced(lambda v: function(v, dtype=np.int64), real(4))


KEYS: list[Any] = [
    lambda i, j: (i, j), lambda i, j: (i, 0), lambda i, j: (slice(None), i), lambda i, j: slice(0, 2),
    lambda i, j: (..., j), lambda i, j: ([0, 1, 1], [0, -1, 2]), lambda i, j: 1, lambda i, j: (i,),
    lambda i, j: (i[:, None], j), lambda i, j: np.array([True, False, True]), lambda i, j: (-1, 2),
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("ufunc", [np.add, np.subtract])
def test_sums_at_any_key_are_numpys(ufunc: np.ufunc, key: Any) -> None:
    def at(x: np.ndarray, i: np.ndarray, j: np.ndarray, v: np.ndarray) -> np.ndarray:
        y = x.copy()
        assert ufunc.at(y, key(i, j), v) is None
        return y

    i, j = np.array([0, -2, 1]), np.array([0, 2, 2])
    for x, v in ((real(3, 3), real(3)), (real(3, 3), np.array(2.5)), (real(3, 3), real(1, 3))):
        if np.broadcast_shapes(v.shape, x[key(i, j)].shape) == x[key(i, j)].shape:
            check(at, x, i, j, v)
    check(at, np.arange(9).reshape(3, 3), i, j, np.array(3))


def test_what_is_added_at_places_is_as_in_numpy() -> None:
    def added(x: np.ndarray, i: np.ndarray, v: np.ndarray) -> np.ndarray:
        y = x.copy()
        np.add.at(y, i, v)
        return y

    places = np.array([0, -1, 1, -3])
    for x, v in (
        (real(4), real(4)), (real(4, 2), real(4, 1)), (np.zeros(4, np.int64), real(4)),
        (np.zeros((4, 2), np.uint8), np.array([[1], [-2], [300], [4]])),
    ):  # fmt: skip
        check(added, x, places, v)


LOOKUPS: list[Any] = [
    lambda x, i: x[i], np.take, lambda x, i: np.take_along_axis(x, i, 0),
    lambda x, i: np.stack([x, x])[i * 0, i], lambda x, i: _written(x, i),
    lambda x, i: _written(x, i, np.put_along_axis, 1.0, 0), lambda x, i: _written(x, i, np.add.at, x[0]),
]  # fmt: skip


@pytest.mark.parametrize("call", LOOKUPS)
@pytest.mark.parametrize("wrong", [-6, 5, -11])
def test_an_index_that_is_out_of_range_is_named_as_it_was_given_too(call: Any, wrong: int) -> None:
    given = rf"index {wrong + 5} \({wrong} if negative" if wrong < 0 else f"index {wrong} is out"
    with pytest.raises(GraphcError, match=given):
        traced(call, real(5), np.array([1, wrong, -5]))


def _written(x: Any, i: Any, function: Any = None, *rest: Any) -> Any:
    y = x.copy()
    if function is None:
        y[i] = 1.0
    else:
        function(y, i, *rest)
    return y


def test_counts_of_integers_have_the_length_that_is_asked_for() -> None:
    i = np.array([0, 2, 2, 1])
    check(lambda i, w: np.bincount(i, w, 5), i, real(4))
    with pytest.raises(GraphcError, match="without minlength="):
        traced(np.bincount, i)
    for wrong in (np.array([0, 5]), np.array([0, -1])):
        with pytest.raises(GraphcError, match="out of range"):
            traced(lambda i: np.bincount(i, minlength=5), wrong)


def test_an_array_without_a_name_is_a_table_too() -> None:
    i = np.array([2, 0, 1])
    check(lambda i: np.eye(3)[i], i)
    check(lambda i: np.eye(3)[i[0]].reshape(-1, 1) + np.eye(3)[i], i)
    check(lambda c, i: np.choose(i, c), real(3, 3), i)


def test_traced_bins_may_fall() -> None:
    for right in (False, True):
        for bins in (np.arange(4.0), np.arange(4.0)[::-1].copy(), np.array([2.0, 1.0, 1.0, 0.0])):
            check(lambda x, b, r=right: np.digitize(x, b, r), np.arange(-1.0, 5.0, 0.5), bins)
        check(lambda x, b, r=right: np.digitize(x, b, r), real(5), np.ones(1))


def test_a_number_at_the_end_of_a_difference_decides_the_dtype_of_small_integers() -> None:
    for dtype in (np.uint8, np.int64, np.float64):
        x = np.array([[0, 1, 5], [2, 1, 0]]).astype(dtype)
        check(lambda v: np.diff(v, append=0), x)
        check(lambda v: np.diff(v, prepend=300, axis=0), x)
        check(lambda v: np.diff(v, append=np.zeros((2, 1), v.dtype)), x)
        check(lambda v: np.diff(v, append=0.5), x, rtol=1e-6)


def test_a_variance_about_a_given_mean_is_about_that_one() -> None:
    x, m = real(3, 4), real(3, 1, seed=2)
    for function in (np.var, np.std):
        check(lambda x, m, f=function: f(x, 1, mean=m), x, m)
        check(lambda x, m, f=function: f(x, axis=1, mean=m, ddof=2, keepdims=True), x, m)
        check(lambda x, f=function: f(x, mean=0.25), x)
        check(lambda x, f=function: f(x, mean=np.mean(x, keepdims=True), correction=1), x)


def test_tolerances_may_be_lists() -> None:
    x = real(2, 4)
    check(lambda v: np.isclose(v, v + 0.1, [0.0, 0.1, 0.2, 0.0], [[0.05], [0.2]]), x)
    check(lambda v: np.isclose(v, v + 0.1, 0.0, v), x)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: np.tensordot(x, x, ([1, 1], [0, 1])), lambda x: np.tensordot(x, x, ([0, 1], [0, -2])),
        lambda x: np.var(x, ddof=1, correction=1), lambda x: np.clip(x, 0, 1, max=2),
        lambda x: np.vsplit(x[0], 3), lambda x: np.diag_indices_from(x[0]),
        lambda x: np.diag_indices_from(x[:2]), lambda x: np.pad(x, 1.5), lambda x: np.pad(x, "1"),
        lambda x: np.put_along_axis(x.copy(), np.array([[0, 1]]), 1.0, None),
    ],
)  # fmt: skip
def test_what_numpy_refuses_is_refused(call: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        call(real(3, 3))
    with pytest.raises(GraphcError) as caught:
        traced(call, real(3, 3))
    assert caught.value.code in ("G0206", "G0810")


def test_widths_of_padding_that_are_traced_are_refused() -> None:
    with pytest.raises(GraphcError, match="traced widths"):
        traced(lambda x, n: np.pad(x, n), real(3), np.array(2))


# -- numbers beside arrays ------------------------------------------------------------------------

BESIDE_A_NUMBER = [
    lambda v: np.searchsorted(v, 0.4), lambda v: v.searchsorted(0.4), lambda v: np.isin(0.4, v),
    lambda v: np.interp(0.3, v, v * 3), lambda v: np.polyval(v, 0.3), lambda v: np.inner(v, 0.1),
    lambda v: np.outer(v, 0.1), lambda v: np.kron(v, 0.1), lambda v: np.tensordot(v, 0.1, 0),
    lambda v: np.dot(v, 0.1), lambda v: np.einsum("i,->i", v, 0.1), lambda v: np.add.outer(v, 0.1),
    lambda v: np.broadcast_arrays(v, 0.1)[1] * v, lambda v: np.meshgrid(v, 0.1)[1],
]  # fmt: skip
LOSSES = ["mse", "mae", "huber", "kl_divergence", "sigmoid_cross_entropy", "binary_cross_entropy"]


def test_a_number_is_in_the_dtype_of_the_array_beside_it_in_a_step_of_two_dtypes() -> None:
    """0.4 in f32 is more than 0.4 in f64: one place further in a sorted array."""
    x, narrow = np.array([0.2, 0.4, 0.6, 0.8, 1.0]), np.zeros(5, np.float32)
    for call in BESIDE_A_NUMBER:
        check(lambda v, w, c=call: c(v), x, narrow, rtol=1e-15)
    for loss in LOSSES:
        call = getattr(graphc.nn, loss)
        alone, beside = traced(lambda v, c=call: c(v, 0.3), x), np.full_like(x, 0.3)
        mixed = traced(lambda v, w, c=call: c(v, 0.3), x, narrow)
        np.testing.assert_array_equal(alone, mixed)
        np.testing.assert_allclose(alone, traced(lambda v, w, c=call: c(v, w), x, beside), 1e-15)


# -- lengths ---------------------------------------------------------------------------------------


def test_what_the_size_of_the_batch_decides_holds_for_one_size() -> None:
    x = real(4)
    for call in (np.vander, lambda v: np.array_equal(v, np.ones(3))):
        with pytest.warns(GraphcWarning, match="G0832"):
            graphc.trace(
                lambda p, b, c=call: {"y": c(b["x"]) + p["w"]}, {"w": np.ones(1)}, {"x": x}
            )
    check(np.vander, x)
    check(lambda v: np.vander(v, 2), x)
