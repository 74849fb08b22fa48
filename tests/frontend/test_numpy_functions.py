"""Every public function of NumPy either traces and equals NumPy, or says that it can't be traced."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from graphc.errors import GraphcError
from graphc.frontend import numpy_table, numpy_ufuncs
from graphc.frontend.trace import record
from graphc.ops.evaluate import evaluate

Call = Callable[..., Any]


def traced(call: Call, *arrays: np.ndarray) -> list[np.ndarray]:
    """The arrays that `call` gives when it is traced: the graph is built, then evaluated."""
    batch = {f"a{i}": a for i, a in enumerate(arrays)}

    def step(params: Any, batch: Any) -> dict[str, Any]:
        results = call(*batch.values())
        several = results if isinstance(results, (list, tuple)) else [results]
        return {f"r{i}": r for i, r in enumerate(several)}

    recording = record(step, {}, batch, whole=["*"])
    values = evaluate(recording.graph, batch)
    return [values[node] for node in recording.graph.outputs.values()]


def check(call: Call, *arrays: np.ndarray, rtol: float = 1e-9) -> None:
    """Traced equals NumPy: number, shape, kind of dtype and value of the results."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        wanted = call(*arrays)
    wanted = wanted if isinstance(wanted, (list, tuple)) else [wanted]
    got = traced(call, *arrays)
    assert len(got) == len(wanted)
    for a, b in zip(got, map(np.asarray, wanted), strict=True):
        assert a.shape == b.shape
        assert a.dtype.kind == b.dtype.kind or (a.dtype.kind, b.dtype.kind) == ("i", "u")
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-12)


def real(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, shape)


def ints(*shape: int, low: int = -4, high: int = 9, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(low, high, shape)


def bools(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2, shape).astype(bool)


ODD = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.5, 3.5])
SHAPES = [(), (3,), (2, 3), (0, 2)]

# -- one operand ----------------------------------------------------------------------------------

_ANY = (
    "exp exp2 expm1 sin cos tan tanh sinh cosh arctan arcsinh absolute fabs sign negative positive "
    "square cbrt floor ceil trunc rint isnan isinf isfinite signbit logical_not deg2rad radians "
    "rad2deg degrees conjugate fix sinc real imag isreal iscomplex nan_to_num isneginf isposinf "
    "real_if_close"
)
DOMAINS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(_ANY.split(), (-2.0, 2.0)),
    **dict.fromkeys(["log", "log2", "log10", "sqrt", "reciprocal"], (0.2, 4.0)),
    **dict.fromkeys(["arcsin", "arccos", "arctanh"], (-0.95, 0.95)),
    "log1p": (-0.9, 4.0),
    "arccosh": (1.1, 4.0),
}


@pytest.mark.parametrize("name", DOMAINS)
def test_functions_of_one_operand_equal_numpy(name: str) -> None:
    low, high = DOMAINS[name]
    for shape in SHAPES:
        check(getattr(np, name), real(*shape, low=low, high=high))


@pytest.mark.parametrize(
    "name", ["isnan", "isinf", "isfinite", "nan_to_num", "sign", "signbit", "trunc", "rint",
             "floor", "ceil", "negative", "absolute", "isneginf", "isposinf"]
)  # fmt: skip
def test_functions_of_one_operand_keep_nan_and_infinity(name: str) -> None:
    check(getattr(np, name), ODD)


def test_nan_to_num_takes_the_numbers_to_put_in() -> None:
    check(lambda x: np.nan_to_num(x, nan=1.0, posinf=2.0, neginf=-3.0), ODD)


def test_functions_of_integers_equal_numpy() -> None:
    for name in ("absolute", "sign", "negative", "square", "invert", "logical_not", "reciprocal"):
        with np.errstate(divide="ignore"):
            check(getattr(np, name), ints(5, low=1))
    check(np.invert, bools(5))
    check(lambda x: np.invert(x), ints(5).astype(np.uint8))
    for name in ("floor", "ceil", "trunc", "round"):
        check(getattr(np, name), ints(5))


def test_rounding_to_decimals_equals_numpy() -> None:
    x = real(7, low=-200, high=200)
    for decimals in (-2, 0, 1, 3):
        check(lambda v, d=decimals: np.round(v, d), x)
        check(lambda v, d=decimals: np.around(v, decimals=d), x)
        check(lambda v, d=decimals: v.round(d), x)


def test_modf_gives_fraction_and_whole_part() -> None:
    check(np.modf, real(6, low=-5, high=5))


# -- two operands ---------------------------------------------------------------------------------

BINARY: dict[str, tuple[float, float]] = {
    **dict.fromkeys(
        ("add subtract multiply maximum minimum equal not_equal less less_equal greater "
         "greater_equal arctan2 hypot logaddexp logaddexp2 fmax fmin logical_and logical_or "
         "logical_xor copysign heaviside").split(),
        (-2.0, 2.0),
    ),
    **dict.fromkeys(
        "divide true_divide power float_power floor_divide mod remainder fmod divmod".split(),
        (0.4, 3.0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_operands_broadcast_as_numpy_does(name: str) -> None:
    low, high = BINARY[name]
    function = getattr(np, name)
    pairs = [((), ()), ((3,), (2, 3)), ((2, 1), (1, 3)), ((2, 3), ()), ((0, 3), (3,))]
    for left, right in pairs:
        a, b = real(*left, low=low, high=high), real(*right, low=low, high=high, seed=1)
        check(function, a, b)
    x = real(2, 3, low=low, high=high)
    check(lambda v: function(v, 2.5), x)
    check(lambda v: function(1.5, v), x)
    check(lambda v: function(v, x[0] + 0.5), x)
    check(lambda v: function(x[:1] + 0.25, v), x)


@pytest.mark.parametrize(
    "name", "add subtract multiply maximum minimum floor_divide mod fmod divmod equal less power "
    "bitwise_and bitwise_or bitwise_xor".split()
)  # fmt: skip
def test_functions_of_two_integers_stay_integers(name: str) -> None:
    a, b = ints(2, 3, low=0), ints(3, low=1, high=5, seed=1)
    check(getattr(np, name), a, b)


def test_functions_of_two_bools_are_logical() -> None:
    for name in ("add", "multiply", "maximum", "minimum", "logical_and", "bitwise_xor", "equal"):
        check(getattr(np, name), bools(6), bools(6, seed=1))


def test_signs_of_remainders_follow_numpy() -> None:
    a, b = np.meshgrid(np.array([-5.5, -2.0, 2.0, 5.5]), np.array([-3.0, 3.0]))
    for name in ("mod", "fmod", "floor_divide", "divmod", "copysign"):
        check(getattr(np, name), a, b)


def test_nan_is_ignored_or_kept_as_numpy_does() -> None:
    for name in ("fmax", "fmin", "copysign"):
        check(getattr(np, name), ODD, ODD[::-1].copy())


def test_ldexp_scales_by_a_power_of_two() -> None:
    check(np.ldexp, real(4), ints(4, low=0, high=4))


# -- reductions -----------------------------------------------------------------------------------

REDUCTIONS = (
    "sum prod mean var std max min amax amin ptp any all count_nonzero average median nansum "
    "nanprod nanmax nanmin nanmean nanvar nanstd argmax argmin nanargmax nanargmin"
).split()
_ONE_AXIS = {"argmax", "argmin", "nanargmax", "nanargmin"}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_take_axis_and_keepdims(name: str) -> None:
    x = real(2, 3, 4)
    if name.startswith("nan"):
        x[0, 1, 2] = np.nan
    axes: list[Any] = [None, 0, -1, 1]
    axes += [] if name in _ONE_AXIS else [(0, 2), (-1, 0)]
    for axis, keepdims in product(axes, (False, True)):
        check(lambda v, a=axis, k=keepdims: getattr(np, name)(v, axis=a, keepdims=k), x)


@pytest.mark.parametrize("name", "sum prod mean var std max min any all argmax argmin".split())
def test_reductions_are_methods_too(name: str) -> None:
    x = real(2, 3)
    check(lambda v: getattr(v, name)(), x)
    check(lambda v: getattr(v, name)(axis=1, keepdims=True), x)


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "cumsum", "cumprod"])
def test_reductions_of_integers_equal_numpy(name: str) -> None:
    check(lambda v: getattr(np, name)(v, axis=1), ints(3, 4))
    if name in ("sum", "prod"):
        check(lambda v: getattr(np, name)(v), bools(4))


def test_reductions_take_where_and_initial() -> None:
    x, m = real(3, 4), bools(3, 4)
    m[0] = True
    m[:, 0] = True
    for name in ("sum", "prod", "mean"):
        check(lambda v, w, n=name: getattr(np, n)(v, axis=0, where=w), x, m)
    check(lambda v, w: np.max(v, axis=0, where=w, initial=-9.0), x, m)
    check(lambda v, w: np.min(v, axis=0, where=w, initial=1.0), x, m)
    check(lambda v: np.sum(v, initial=2.0), x)
    check(lambda v: np.prod(v, axis=1, initial=2.0), x)
    check(lambda v, w: np.any(v > 0, where=w), x, m)
    check(lambda v, w: np.all(v > -9, axis=0, where=w), x, m)


def test_reductions_take_dtype_and_ddof() -> None:
    x = real(3, 4)
    assert traced(lambda v: np.sum(v, dtype=np.float32), x)[0].dtype == np.float32
    check(lambda v: np.var(v, ddof=1), x)
    check(lambda v: np.std(v, axis=0, ddof=1), x)
    check(lambda v: np.nanvar(v, axis=0, ddof=1), x)


def test_weighted_averages_equal_numpy() -> None:
    x, w = real(3, 4), real(4, low=0.1)
    check(lambda v, u: np.average(v, axis=1, weights=u), x, w)
    check(lambda v, u: np.average(v, weights=u), x, np.abs(x) + 0.1)
    check(lambda v, u: np.average(v, axis=0, weights=u, returned=True), x, np.abs(x) + 0.1)


def test_running_results_equal_numpy() -> None:
    x = real(3, 4)
    for name in ("cumsum", "cumprod", "nancumsum", "nancumprod"):
        for axis in (None, 0, -1):
            check(lambda v, n=name, a=axis: getattr(np, n)(v, axis=a), x)
    for name in ("cumulative_sum", "cumulative_prod"):
        if hasattr(np, name):
            check(lambda v, n=name: getattr(np, n)(v, axis=1, include_initial=True), x)
            check(lambda v, n=name: getattr(np, n)(v), x[0])
    check(lambda v: np.diff(v), x)
    check(lambda v: np.diff(v, n=2, axis=0), x)
    check(lambda v: np.diff(v, prepend=0.0, append=v[:, :1]), x)
    check(lambda v: np.diff(v), bools(5))
    check(np.ediff1d, x)
    check(lambda v: np.trapezoid(v, dx=0.5), x)
    check(lambda v: np.trapezoid(v, np.array([0.0, 1.0, 3.0]), axis=0), x)


def test_methods_of_ufuncs_equal_numpy() -> None:
    x, y = real(3, 4), real(5, seed=1)
    for name in ("add", "multiply", "maximum", "minimum", "logical_and", "logical_or", "logaddexp"):
        check(lambda v, n=name: getattr(np, n).reduce(v), x)
        check(lambda v, n=name: getattr(np, n).reduce(v, axis=1, keepdims=True), x)
    for name in ("add", "multiply", "maximum", "minimum", "logaddexp", "fmax", "fmin"):
        check(lambda v, n=name: getattr(np, n).accumulate(v, axis=1), x)
    for name in ("add", "subtract", "multiply", "divide", "maximum", "less"):
        check(lambda v, w, n=name: getattr(np, n).outer(v, w), x, y)
    for name in ("logical_xor", "bitwise_or"):
        check(lambda v, n=name: getattr(np, n).accumulate(v), bools(6))


def test_statistics_equal_numpy() -> None:
    x = real(3, 5)
    check(np.cov, x)
    check(lambda v: np.cov(v, rowvar=False, bias=True), x)
    check(lambda v: np.cov(v, ddof=0), x[0])
    check(np.corrcoef, x)
    for q in (0.0, 0.3, 1.0, [0.25, 0.5]):
        check(lambda v, q=q: np.quantile(v, q, axis=1), x)
        check(lambda v, q=q: np.percentile(v, np.multiply(q, 100)), x)
    check(lambda v: np.quantile(v, 0.4, axis=(0, 1), keepdims=True), x)


# -- shapes ---------------------------------------------------------------------------------------

A, V, M = real(2, 3, 4), real(4), real(3, 4, seed=2)
S = real(3, 3)

SHAPING: dict[str, list[Call]] = {
    "reshape": [lambda x: np.reshape(x, (4, 6)), lambda x: x.reshape(-1, 2), lambda x: x.reshape(24)],
    "ravel": [np.ravel, lambda x: x.ravel(), lambda x: x.flatten()],
    "transpose": [np.transpose, lambda x: np.transpose(x, (1, 2, 0)), lambda x: x.transpose(2, 0, 1),
                  lambda x: x.T, lambda x: x.transpose((0, 2, 1)), lambda x: x.transpose()],
    "permute_dims": [lambda x: np.permute_dims(x, (2, 0, 1))],
    "matrix_transpose": [np.matrix_transpose, lambda x: x.mT],
    "swapaxes": [lambda x: np.swapaxes(x, 0, -1), lambda x: x.swapaxes(1, 2)],
    "moveaxis": [lambda x: np.moveaxis(x, 0, -1), lambda x: np.moveaxis(x, (0, 1), (2, 0))],
    "rollaxis": [lambda x: np.rollaxis(x, 2), lambda x: np.rollaxis(x, 0, 3),
                 lambda x: np.rollaxis(x, 1, 1)],
    "expand_dims": [lambda x: np.expand_dims(x, 0), lambda x: np.expand_dims(x, (1, -1))],
    "squeeze": [lambda x: np.squeeze(x[:, None]), lambda x: x[None].squeeze(0)],
    "broadcast_to": [lambda x: np.broadcast_to(x, (5, 2, 3, 4)),
                     lambda x: np.broadcast_to(x[:, :1], (2, 3, 4))],
    "broadcast_arrays": [lambda x: np.broadcast_arrays(x, x[:1], 1.0)],
    "atleast_1d": [np.atleast_1d, lambda x: np.atleast_1d(x[0, 0, 0])],
    "atleast_2d": [np.atleast_2d, lambda x: np.atleast_2d(x[0, 0]),
                   lambda x: np.atleast_2d(x[0], x[0, 0, 0])],
    "atleast_3d": [np.atleast_3d, lambda x: np.atleast_3d(x[0, 0]), lambda x: np.atleast_3d(x[0]),
                   lambda x: np.atleast_3d(x[0, 0, 0])],
    "concatenate": [lambda x: np.concatenate([x, x[:1]]), lambda x: np.concatenate((x, x), axis=-1),
                    lambda x: np.concatenate([x, A], axis=None)],
    "concat": [lambda x: np.concat([x, x[:, :0]], axis=1)],
    "stack": [lambda x: np.stack([x, x * 2]), lambda x: np.stack([x, A], axis=-1)],
    "vstack": [lambda x: np.vstack([x, x]), lambda x: np.vstack([x[0, 0], V])],
    "hstack": [lambda x: np.hstack([x, x]), lambda x: np.hstack([x[0, 0], 1.0])],
    "dstack": [lambda x: np.dstack([x[0], x[1]]), lambda x: np.dstack([x[0, 0], x[0, 1]])],
    "column_stack": [lambda x: np.column_stack([x[0, 0], x[0, 1]]),
                     lambda x: np.column_stack([x[0], x[1]])],
    "append": [lambda x: np.append(x, 1.0), lambda x: np.append(x, x, axis=0)],
    "block": [lambda x: np.block([[x[0], x[1]], [x[1], M]]), lambda x: np.block([x[0, 0], 1.0])],
    "meshgrid": [lambda x: np.meshgrid(x[0, 0], x[0, :, 0]),
                 lambda x: np.meshgrid(x[0, 0], V, indexing="ij"),
                 lambda x: np.meshgrid(x[0, 0], V[:2], sparse=True)],
    "split": [lambda x: np.split(x, 2), lambda x: np.split(x, [1, 3], axis=2)],
    "array_split": [lambda x: np.array_split(x, 3, axis=2), lambda x: np.array_split(x, 2, axis=1)],
    "hsplit": [lambda x: np.hsplit(x, 3), lambda x: np.hsplit(x[0, 0], [2])],
    "vsplit": [lambda x: np.vsplit(x, 2)],
    "dsplit": [lambda x: np.dsplit(x, 2)],
    "unstack": [lambda x: np.unstack(x, axis=1)],
    "tile": [lambda x: np.tile(x, 2), lambda x: np.tile(x, (2, 1, 1, 3)), lambda x: np.tile(x, (2, 1))],
    "repeat": [lambda x: np.repeat(x, 2), lambda x: np.repeat(x, 3, axis=1),
               lambda x: x.repeat([0, 2, 1], axis=1)],
    "roll": [lambda x: np.roll(x, 3), lambda x: np.roll(x, -1, axis=2),
             lambda x: np.roll(x, (1, 2), axis=(0, 2)), lambda x: np.roll(x, 1, axis=(0, 1))],
    "flip": [np.flip, lambda x: np.flip(x, 1), lambda x: np.flip(x, (0, 2))],
    "flipud": [np.flipud],
    "fliplr": [np.fliplr],
    "rot90": [np.rot90, lambda x: np.rot90(x, 2), lambda x: np.rot90(x, 3, axes=(1, 2)),
              lambda x: np.rot90(x, 4), lambda x: np.rot90(x, axes=(2, 0))],
    "resize": [lambda x: np.resize(x, (5, 7)), lambda x: np.resize(x, 3)],
    "delete": [lambda x: np.delete(x, 1, axis=2), lambda x: np.delete(x, [0, -1])],
    "pad": [lambda x: np.pad(x, 1), lambda x: np.pad(x, ((0, 1), (2, 0), (0, 0)), constant_values=3.0),
            lambda x: np.pad(x, (1, 2), mode="edge"), lambda x: np.pad(x, 1, mode="reflect"),
            lambda x: np.pad(x, 2, mode="symmetric"), lambda x: np.pad(x, 1, mode="wrap"),
            lambda x: np.pad(x, (1, 2), constant_values=(4.0, 5.0))],
    "tril": [np.tril, lambda x: np.tril(x, 1)],
    "triu": [np.triu, lambda x: np.triu(x, -1)],
    "diagonal": [np.diagonal, lambda x: np.diagonal(x, 1, 1, 2), lambda x: x.diagonal(-1, 2, 1),
                 lambda x: np.diagonal(x, -2, 1, 2)],
    "linalg.diagonal": [lambda x: np.linalg.diagonal(x, offset=1)],
    "trace": [np.trace, lambda x: np.trace(x, 1, 1, 2)],
    "linalg.trace": [lambda x: np.linalg.trace(x)],
    "diag": [lambda x: np.diag(x[0]), lambda x: np.diag(x[0], 2), lambda x: np.diag(x[0, 0]),
             lambda x: np.diag(x[0, 0], 1), lambda x: np.diag(x[0, 0], -2)],
    "diagflat": [lambda x: np.diagflat(x[0]), lambda x: np.diagflat(x[0, 0], 1)],
    "zeros_like": [np.zeros_like, lambda x: np.zeros_like(x, dtype=np.int32)],
    "ones_like": [np.ones_like, lambda x: np.ones_like(x, shape=(2, 5))],
    "full_like": [lambda x: np.full_like(x, 3.5), lambda x: np.full_like(x, x[0, 0, 0])],
    "copy": [np.copy, lambda x: x.copy()],
    "astype": [lambda x: x.astype(np.float32), lambda x: x.astype("int32"), lambda x: x.astype(bool)],
    "clip": [lambda x: np.clip(x, -0.5, 0.5), lambda x: np.clip(x, None, V), lambda x: x.clip(0.1),
             lambda x: np.clip(x, x[0], 1.0), lambda x: x.clip(max=0.3)],
    "where": [lambda x: np.where(x > 0, x, 0.0), lambda x: np.where(x > 0, 1, -1),
              lambda x: np.where(M > 0, x, -x)],
    "select": [lambda x: np.select([x > 1, x > 0], [x, x * 2], default=-1.0)],
    "choose": [lambda x: np.choose((x > 0).astype(np.int32), [x, x * 3])],
    "isclose": [lambda x: np.isclose(x, A + 1e-9), lambda x: np.isclose(x, np.nan, equal_nan=True)],
    "allclose": [lambda x: np.allclose(x, A)],
    "array_equal": [lambda x: np.array_equal(x, A)],
    "array_equiv": [lambda x: np.array_equiv(x, A[:1])],
    "isin": [lambda x: np.isin(np.round(x), [0, 1]), lambda x: np.isin(x, A[0], invert=True)],
    "sort": [np.sort, lambda x: np.sort(x, axis=0), lambda x: np.sort(x, axis=None)],
    "argsort": [np.argsort, lambda x: x.argsort(axis=1)],
    "take": [lambda x: np.take(x, [0, -1, 2]), lambda x: np.take(x, [[0, 1]], axis=1),
             lambda x: x.take(ints(3, low=0, high=3), axis=2),
             lambda x: np.take(x, [5, -7], axis=1, mode="wrap"),
             lambda x: np.take(x, [5, -7], axis=1, mode="clip")],
    "take_along_axis": [lambda x: np.take_along_axis(x, np.argsort(x, axis=1), axis=1),
                        lambda x: np.take_along_axis(x, ints(1, 3, 2, low=-4, high=4), axis=2),
                        lambda x: np.take_along_axis(x, np.array([0, 5]), axis=None)],
    "searchsorted": [lambda x: np.searchsorted(np.sort(V), x),
                     lambda x: np.searchsorted(np.sort(x[0, 0]), V, side="right")],
    "digitize": [lambda x: np.digitize(x, np.sort(V)),
                 lambda x: np.digitize(x, np.sort(V), right=True)],
    "interp": [lambda x: np.interp(x, np.sort(V), V), lambda x: np.interp(x, np.sort(V), V, 7.0, 8.0)],
}  # fmt: skip

PRODUCTS: dict[str, list[Call]] = {
    "dot": [lambda x: np.dot(x, V), lambda x: np.dot(x[0], M.T), lambda x: x[0, 0].dot(V),
            lambda x: np.dot(M, x.T), lambda x: np.dot(x, 2.0)],
    "vdot": [lambda x: np.vdot(x[0], M)],
    "inner": [lambda x: np.inner(x, V), lambda x: np.inner(x[0], M)],
    "outer": [lambda x: np.outer(x[0], V)],
    "linalg.outer": [lambda x: np.linalg.outer(x[0, 0], V)],
    "matmul": [lambda x: x @ M.T, lambda x: M.T @ x, lambda x: np.matmul(x, V), lambda x: V[:3] @ x],
    "linalg.matmul": [lambda x: np.linalg.matmul(x, M.T)],
    "tensordot": [lambda x: np.tensordot(x, M), lambda x: np.tensordot(x, M, axes=([1], [0])),
                  lambda x: np.tensordot(x, V, axes=(2, 0)), lambda x: np.tensordot(x, V, 0)],
    "linalg.tensordot": [lambda x: np.linalg.tensordot(x, M, axes=2)],
    "einsum": [lambda x: np.einsum("bij,kj->bik", x, M), lambda x: np.einsum("bij->", x),
               lambda x: np.einsum("bij->jb", x), lambda x: np.einsum("...j,j->...", x, V),
               lambda x: np.einsum("...ij,...kj", x, M), lambda x: np.einsum("ii->i", x[0, :, :3]),
               lambda x: np.einsum("ij,ij,j", x[0], M, V), lambda x: np.einsum("ii", x[0, :, :3]),
               lambda x: np.einsum("b...,b...->...", x, A), lambda x: np.einsum("i...->...i", x)],
    "kron": [lambda x: np.kron(x[0], M[:2]), lambda x: np.kron(x, V)],
    "cross": [lambda x: np.cross(x[..., :3], V[:3]), lambda x: np.cross(x[0], M, axis=0)],
    "linalg.cross": [lambda x: np.linalg.cross(x[..., :3], V[:3])],
    "vecdot": [lambda x: np.vecdot(x, V)],
    "linalg.vecdot": [lambda x: np.linalg.vecdot(x, A, axis=1)],
    "matvec": [lambda x: np.matvec(x, V)],
    "vecmat": [lambda x: np.vecmat(V[:3], x)],
    "linalg.multi_dot": [lambda x: np.linalg.multi_dot([x[0], M.T, x[1]])],
    "linalg.matrix_power": [lambda x: np.linalg.matrix_power(x[0, :, :3], 5),
                            lambda x: np.linalg.matrix_power(x[..., :3], 0)],
    "linalg.norm": [np.linalg.norm, lambda x: np.linalg.norm(x, axis=1),
                    lambda x: np.linalg.norm(x[0], "fro"), lambda x: np.linalg.norm(x[0], 1),
                    lambda x: np.linalg.norm(x[0], -np.inf), lambda x: np.linalg.norm(x, 3, axis=-1),
                    lambda x: np.linalg.norm(x, np.inf, axis=(1, 2), keepdims=True),
                    lambda x: np.linalg.norm(x, -np.inf, axis=0), lambda x: np.linalg.norm(x, 0, axis=0),
                    lambda x: np.linalg.norm(x, axis=(0, 2), keepdims=True)],
    "linalg.vector_norm": [np.linalg.vector_norm, lambda x: np.linalg.vector_norm(x, axis=1, ord=1)],
    "linalg.matrix_norm": [np.linalg.matrix_norm, lambda x: np.linalg.matrix_norm(x, ord=1)],
    "linalg.matrix_transpose": [np.linalg.matrix_transpose],
    "convolve": [lambda x: np.convolve(x[0, 0], V[:3]), lambda x: np.convolve(x[0, 0], V[:2], "same"),
                 lambda x: np.convolve(x[0, 0], V[:3], "valid"), lambda x: np.convolve(V[:2], x[0, 0])],
    "correlate": [lambda x: np.correlate(x[0, 0], V[:2]), lambda x: np.correlate(x[0, 0], V[:3], "full"),
                  lambda x: np.correlate(V[:2], x[0, 0], "full")],
    "polyval": [lambda x: np.polyval([1.0, -2.0, 3.0], x), lambda x: np.polyval(x[0, 0], V)],
    "vander": [lambda x: np.vander(x[0, 0]), lambda x: np.vander(x[0, 0], 3, increasing=True)],
}  # fmt: skip

FACTS: dict[str, list[Call]] = {
    "shape": [np.shape], "ndim": [np.ndim], "size": [np.size, lambda x: np.size(x, 1)],
    "isrealobj": [np.isrealobj], "iscomplexobj": [np.iscomplexobj],
    "can_cast": [lambda x: np.can_cast(x.dtype, np.float32)],
    "tril_indices_from": [lambda x: np.tril_indices_from(x[0])],
    "triu_indices_from": [lambda x: np.triu_indices_from(x[0], 1)],
    "diag_indices_from": [lambda x: np.diag_indices_from(x[0, :, :3])],
}  # fmt: skip

CASES = SHAPING | PRODUCTS | FACTS


def _exists(name: str) -> bool:
    return numpy_table.find(name) is not None


@pytest.mark.parametrize("name", [n for n in CASES if _exists(n)])
def test_functions_of_one_array_equal_numpy(name: str) -> None:
    for call in CASES[name]:
        check(call, A)


def test_partition_gives_a_sorted_array() -> None:
    assert np.array_equal(traced(lambda x: np.partition(x, 2), V)[0], np.sort(V))
    assert np.array_equal(traced(lambda x: np.argpartition(x, 2), V)[0], np.argsort(V))
    assert np.array_equal(traced(lambda x: x.argpartition(2), V)[0], np.argsort(V))


def test_empty_like_gives_zeros() -> None:
    assert np.array_equal(traced(lambda x: np.empty_like(x) + 1, V)[0], np.ones(4))


def test_result_type_promotes_as_graphc_does() -> None:
    def call(x: Any) -> Any:
        assert np.result_type(x, np.float32) == np.float64
        assert np.result_type(x.astype(np.int32), np.float32) == np.float32
        assert np.result_type(x.astype(np.int32), 1.5) == np.float32
        return x

    traced(call, V)


def test_traced_arrays_print_their_type() -> None:
    def call(x: Any) -> Any:
        assert repr(x) == str(x) == f"{x:.3f}" == np.array2string(x) == "<traced f64[4] %a0>"
        return x

    traced(call, V)


# -- all of NumPy ---------------------------------------------------------------------------------

_OTHER_CASES = (
    "invert bitwise_and bitwise_or bitwise_xor logical_and logical_or logical_xor round around "
    "modf ldexp divmod cumsum cumprod nancumsum nancumprod cumulative_sum cumulative_prod diff "
    "ediff1d trapezoid cov corrcoef quantile percentile partition argpartition empty_like "
    "result_type array_repr array_str array2string row_stack"
).split()

# What never gets to see a traced array, or is not about arrays.
EXEMPT = set(
    "arange array_split bartlett base_repr binary_repr blackman broadcast_shapes busday_count "
    "busday_offset datetime_as_string datetime_data diag_indices empty eye format_float_positional "
    "format_float_scientific from_dlpack frombuffer fromfile fromfunction fromiter frompyfunc "
    "fromregex fromstring full genfromtxt get_include get_printoptions getbufsize geterr geterrcall "
    "hamming hanning identity indices info is_busday isdtype isscalar issubdtype iterable kaiser "
    "load loadtxt mask_indices mintypecode nested_iters ones printoptions promote_types row_stack "
    "set_printoptions setbufsize seterr seterrcall show_config show_runtime test tri tril_indices "
    "triu_indices typename zeros require".split()
)


def _public() -> list[str]:
    names = [n for n in dir(np) if not n.startswith("_")]
    found = [n for n in names if callable(getattr(np, n)) and not isinstance(getattr(np, n), type)]
    linear = [f"linalg.{n}" for n in dir(np.linalg) if not n.startswith("_")]
    return [*found, *(n for n in linear if not isinstance(numpy_table.find(n), type) and n != "linalg.test")]


def _supported(name: str) -> bool:
    function = numpy_table.find(name)
    return function in numpy_table.TABLE or function in numpy_table.UFUNCS


PUBLIC = [n for n in _public() if callable(numpy_table.find(n))]


def test_at_least_a_hundred_functions_trace() -> None:
    assert len([n for n in PUBLIC if _supported(n)]) >= 250


def test_every_supported_function_is_compared_with_numpy() -> None:
    tested = {*DOMAINS, *BINARY, *REDUCTIONS, *CASES, *_OTHER_CASES}
    functions = {numpy_table.find(n) for n in tested}
    missing = [n for n in PUBLIC if _supported(n) and numpy_table.find(n) not in functions]
    assert missing == []


def _attempts(t: Any) -> list[tuple[Any, ...]]:
    i = np.array([0, 1])
    return [
        (t,), (t, t), (t, 1), ([t, t],), (1, t), (t, t, t), (i, t), (t, t > 0), (t > 0, t, t),
        (t, [t], [1]), (t, i, t), ("x", t), (abs, 0, t), (abs, t), ([2, 2], t), (t, [1, 2], 0),
    ]  # fmt: skip


@pytest.mark.parametrize("name", [n for n in PUBLIC if not _supported(n) and n not in EXEMPT])
def test_other_functions_say_that_they_cannot_be_traced(name: str) -> None:
    function = numpy_table.find(name)
    messages: list[GraphcError] = []

    def step(params: Any, batch: Any) -> Any:
        for args in _attempts(batch["x"]):
            try:
                function(*args)
            except GraphcError as error:
                messages.append(error)
            except (TypeError, ValueError, AttributeError, np.linalg.LinAlgError, IndexError):
                pass
        return np.sum(batch["x"])

    record(step, {}, {"x": real(3, 3)})
    assert messages, f"np.{name} took a traced array and said nothing"
    assert all(e.code.startswith("G08") and e.span is not None for e in messages)
    refused = [e for e in messages if e.code == "G0802"]
    assert all(f"np.{function.__name__}" in e.message or name in e.message for e in refused)
    assert all(e.span and e.span.file == __file__ for e in messages)


def test_the_error_names_the_function_and_the_line_and_gives_advice() -> None:
    def step(params: Any, batch: Any) -> Any:
        return np.unique(batch["x"])

    with pytest.raises(GraphcError, match=r"np\.unique can't be traced") as caught:
        record(step, {}, {"x": real(3)})
    text = caught.value.render()
    assert "return np.unique(batch" in text and "depends on the values" in text


def test_methods_of_ufuncs_that_cannot_be_traced_say_so() -> None:
    for call, text in [
        (lambda x: np.add.reduceat(x, [0, 1]), r"np\.add\.reduceat"),
        (lambda x: np.subtract.accumulate(x), r"np\.subtract\.accumulate"),
        (lambda x: np.arctan2.reduce(x), r"np\.arctan2\.reduce"),
        (lambda x: np.frexp(x), r"np\.frexp"),
    ]:
        with pytest.raises(GraphcError, match=text):
            traced(call, V)


def test_every_handler_has_a_docstring() -> None:
    assert [n for n, h in numpy_table.NAMES.items() if not h.__doc__] == []
    assert numpy_ufuncs.handler(np.add, "__call__") is not None
