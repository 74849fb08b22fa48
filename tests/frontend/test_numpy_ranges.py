"""Functions entry by entry over the whole range of their operands: every exponent, both signs,
infinities, NaN, both zeros, the smallest and the largest numbers, and where the functions bend."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graphc.autodiff.reverse_mode import gradients
from graphc.frontend.numpy import forwarding
from graphc.frontend.numpy import table as numpy_table
from graphc.frontend.numpy.trace import record
from graphc.ir.builder import Builder, Value
from graphc.ir.op import all_ops
from graphc.ir.registry import COMPOSITES
from graphc.ir.types import BF16, F16, DType
from graphc.lowering.schedule.schedule import schedule
from graphc.ops.composites import activations, angles, arithmetic, bits
from graphc.runtime.backends import plugins
from graphc.runtime.backends.backend import Backend
from graphc.runtime.backends.reference import BACKEND as REFERENCE
from graphc.support import config
from graphc.testing.running import run

table = SimpleNamespace(**run_path(str(Path(__file__).with_name("function_table.py"))))
Array = np.ndarray[Any, np.dtype[Any]]
L = np.longdouble
PATHS = ("native", "calls", "reference")
wide = pytest.mark.skipif(np.finfo(L).nmant < 63, reason="no wider float to compare with")


# -- operands --------------------------------------------------------------------------------------


def special(dtype: type) -> Array:
    """Numbers where something ends, begins or bends."""
    fi = np.finfo(dtype)
    bends = [0.5, 1, 1.5, 2, 2.5, 3, 7, 10, 20, 33, 88.72, 89, 100.5, 104, 127, 128, 149, 709, 710,
             745, 1e-8, 1e-4, 1e9, 1e19, 3e19, 1e30, np.pi / 4, np.pi / 2, np.pi, np.e, 2.0**28]  # fmt: skip
    x = np.array([0, fi.smallest_subnormal, fi.tiny, fi.max, np.inf, *bends], L)
    with np.errstate(over="ignore"):
        x = np.unique(x.astype(dtype))
    return np.concatenate([x, -x, np.array([np.nan], dtype)])


@cache
@np.errstate(all="ignore")
def points(dtype: type) -> Array:
    """Every exponent, numbers around the special ones, and near 1."""
    fi, rng = np.finfo(dtype), np.random.default_rng(0)
    exponents = np.repeat(np.arange(fi.minexp - fi.nmant, fi.maxexp), 2)
    sizes = np.ldexp(rng.uniform(1, 2, exponents.size).astype(L), exponents).astype(dtype)
    bends = special(dtype)
    near = [np.nextafter(bends, dtype(end)) for end in (-np.inf, np.inf)]
    close = np.ldexp(1.0, -rng.integers(1, fi.nmant + 1, 60)).astype(dtype)
    some = [rng.uniform(0, top, 200).astype(dtype) for top in (2, 100)]
    x = np.concatenate([sizes, *near, *some, dtype(1) + close, dtype(1) - close / 2])
    return np.concatenate([x[x == x], -x[x == x], bends])


@cache
@np.errstate(all="ignore")
def pairs(dtype: type) -> tuple[Array, Array]:
    """All pairs of special numbers, and pairs of all sizes, of like size, and equal ones."""
    rng = np.random.default_rng(1)
    a, b = (v.ravel() for v in np.meshgrid(special(dtype)[::2], special(dtype)[::2]))
    x = points(dtype)
    size = rng.uniform(0.5, 2, 500) * 10.0 ** rng.integers(-30, 30, 500)
    base = np.exp(rng.uniform(-40, 40, 500))
    some = rng.uniform(-30, 30, (3, 500))
    columns = [
        (a, b), (x, rng.permutation(x)), (some[0], some[1]), (some[2], some[2]),
        (size, size * rng.uniform(-2, 2, 500)), (base, rng.uniform(-80, 80, 500) / np.log(base)),
    ]  # fmt: skip
    first, second = (
        np.concatenate([np.asarray(v, dtype) for v in c]) for c in zip(*columns, strict=True)
    )
    return first, second


def operands(name: str, dtype: type) -> tuple[Array, ...]:
    return pairs(dtype) if name in table.BINARY else (points(dtype),)


# -- results ---------------------------------------------------------------------------------------


def program_of(names: list[str], xs: tuple[Array, ...], slopes: bool) -> Any:
    """One program of all functions; with slopes, of their derivatives by each operand."""

    def step(params: Any, batch: Any) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name in names:
            results = table.VALUES[name].call(*batch.values())
            several = results if isinstance(results, tuple) else (results,)
            made |= {f"{name}:{i}": np.sum(y) if slopes else y for i, y in enumerate(several)}
        return made

    feeds = {f"x{i}": x for i, x in enumerate(xs)}
    graph = record(step, {}, feeds, whole=["*"]).graph
    f = Builder.like(graph, keep_nodes=True)
    if slopes:
        f.outputs = {}
        for key, node in graph.outputs.items():
            for x, g in gradients(f, Value(f, node), list(feeds)).items():
                f.outputs[f"{key[:-2]}:{x[1:]}"] = (g or f.zeros_like(Value(f, x))).name
    return schedule(f.build(), exact=True)


@cache
def results(path: str, dtype: type, two: bool, slopes: bool) -> dict[str, Array]:
    """What every function of one operand (or of two) gives on one of the paths."""
    entries = table.BINARY if two else table.UNARY
    names = [n for n in entries if not slopes or n in table.SLOPES]
    return computed(path, names, operands(names[0], dtype), slopes)


def computed(path: str, names: list[str], xs: tuple[Array, ...], slopes: bool) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHC_NATIVE", "1" if path == "native" else "0")
        config.get.cache_clear()
        feeds = {f"x{i}": x for i, x in enumerate(xs)}
        made = run(program_of(names, xs, slopes), backend_of(path), feeds, poison=False)
    config.get.cache_clear()
    return made


def backend_of(path: str) -> Backend:
    return REFERENCE if path == "reference" else plugins.backend("numpy")


def ulps(y: Array, true: Array) -> Array:
    """How far y is from the true value; inf where one is a NaN, or infinite, and the other not."""
    nearest = true.astype(y.dtype)
    unit = np.spacing(np.abs(nearest)).astype(L)
    unit = np.where(np.isfinite(unit), unit, np.spacing(np.finfo(y.dtype).max).astype(L))
    alike = (np.isnan(y) & np.isnan(true)) | (y == nearest)
    error = np.where(alike & ~np.isfinite(y), 0, np.abs(y.astype(L) - true) / unit)
    return np.where(np.isnan(error), np.inf, error).astype(np.float64)


def check(y: Array, true: Array, bound: float, floor: Array, xs: tuple[Array, ...]) -> None:
    """Raise AssertionError where y is further from the true value than the bound, and the floor."""
    error = ulps(y, true)
    far = (error > bound) & ~(np.abs(y.astype(L) - true) <= floor)
    k = np.argsort(-np.where(far, error, -1))[:4]
    assert not far.any(), [(error[i], *(x[i] for x in xs), y[i], true[i]) for i in k]


def cases(entries: dict[str, Any]) -> list[Any]:
    return [
        pytest.param(name, dtype, id=f"{name} {dtype.__name__}")
        for name in entries
        for dtype in (np.float32, np.float64)
    ]


def scale(xs: tuple[Array, ...]) -> Array:
    """1, or the size of the larger operand."""
    sizes = [np.where(np.isfinite(x), np.abs(x.astype(L)), 0) for x in xs]
    return np.maximum(1, np.max(sizes, axis=0))


@wide
@pytest.mark.parametrize(("name", "dtype"), cases(table.VALUES))
def test_a_value_is_within_its_bound(name: str, dtype: type) -> None:
    entry, xs = table.VALUES[name], operands(name, dtype)
    two = name in table.BINARY
    with np.errstate(all="ignore"):
        exact = entry.true is None
        known = entry.call(*xs) if exact else entry.true(*(x.astype(L) for x in xs))
        for path in PATHS:
            for i, true in enumerate(known if isinstance(known, tuple) else (known,)):
                y = results(path, dtype, two, False)[f"{name}:{i}"]
                if y.dtype.kind != "f":
                    assert np.array_equal(y, true)
                    continue
                floor = entry.floor * np.finfo(dtype).eps * scale(xs)
                check(y, np.asarray(true, L), entry.bounds[dtype is np.float64], floor, xs)
                signs = (y == 0) & (true == 0) & (np.signbit(y) != np.signbit(true))
                assert not entry.zeros or not signs.any(), [(x[signs][:3] for x in xs)]


@wide
@pytest.mark.parametrize("path", PATHS[:2])
@pytest.mark.parametrize("two", [False, True], ids=["unary", "binary"])
@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@np.errstate(all="ignore")
def test_half_precision_is_within_a_few_units(dtype: DType, two: bool, path: str) -> None:
    fi = ml_dtypes.finfo(dtype.numpy)
    x = np.arange(0, 2**16, 7, dtype=np.uint16).view(dtype.numpy)
    x = x[x == x]
    xs = (x, np.random.default_rng(0).permutation(x)) if two else (x,)
    entries = table.BINARY if two else table.UNARY
    made = computed(path, list(entries), xs, False)
    for name, entry in entries.items():
        known = (entry.true or entry.call)(*(v.astype(L) for v in xs))
        for i, true in enumerate(known if isinstance(known, tuple) else (known,)):
            y = made[f"{name}:{i}"].astype(L)
            true = np.asarray(true, L)
            right = (y == true.astype(np.float32).astype(dtype.numpy)) | ((y != y) & (true != true))
            unit = float(fi.eps) * np.maximum(np.abs(true), float(fi.tiny))
            near = np.abs(y - true) <= 4 * unit + (float(fi.eps) * scale(xs) if entry.floor else 0)
            top = (
                np.isinf(y) & (np.sign(y) == np.sign(true)) & (np.abs(true) > 0.97 * float(fi.max))
            )
            wrong = np.flatnonzero(~(right | near | top))[:4]
            assert not wrong.size, (name, [(*(v[k] for v in xs), y[k], true[k]) for k in wrong])


@pytest.mark.one_in(2)
@wide
@pytest.mark.parametrize(("name", "dtype"), cases(table.SLOPES))
def test_a_slope_is_within_its_bound(name: str, dtype: type) -> None:
    slope, xs = table.SLOPES[name], operands(name, dtype)
    with np.errstate(all="ignore"):
        function = table.VALUES[name].true or table.VALUES[name].call
        y = np.asarray(function(*(x.astype(L) for x in xs)))
        where = usual(name, xs, y.astype(dtype))
        for k, derivative in enumerate(slope.true):
            true = np.asarray(derivative(*(x.astype(L) for x in xs)), L)
            known = ~np.isnan(true) & ~np.isnan(y) & where
            for path in PATHS:
                g = results(path, dtype, name in table.BINARY, True)[f"{name}:{k}"]
                floor = np.full(int(known.sum()), slope.floor * np.finfo(dtype).eps, L)
                at = tuple(x[known] for x in xs)
                check(g[known], true[known], slope.bounds[dtype is np.float64], floor, at)


def usual(name: str, xs: tuple[Array, ...], y: Array) -> Array:
    """Where a derivative can be as near as its bound says: where no part of it overflows."""
    fi, a = np.finfo(xs[0].dtype), np.abs(xs[0])
    fits = ~np.isinf(y) | np.isinf(np.max(np.abs(xs), axis=0))
    match name:
        case "power":  # b - 1 is b, or 1 / a is infinite
            return fits & (np.abs(xs[1]) < 2**20) & ((a == 0) | (a > fi.tiny))
        case "divide":
            return fits & ((np.abs(xs[0] / xs[1]) > fi.tiny) | (a == 0))
        case "arctan2" | "hypot":  # the length of the vector is infinite, or has few digits
            sizes = np.abs(xs)
            whole = np.all((sizes == 0) | (sizes > fi.tiny / fi.eps), axis=0)
            return fits & whole & (np.max(sizes, axis=0) < fi.max / 2)
        case "copysign":
            return fits & ~np.isnan(xs[1])
        case "nn.silu" | "nn.swish" | "nn.gelu" | "nn.rsqrt" | "nn.mish":
            return fits & np.isfinite(a) & (a > 0)
        case "nn.hard_sigmoid" | "nn.hard_swish":  # so near its kink it is beyond it
            return fits & (np.abs(a - 3) > 1e-5)
        case _:
            return np.asarray(fits)


# -- every function is here ------------------------------------------------------------------------


def test_every_function_entry_by_entry_has_an_entry() -> None:
    ufuncs = {u.__name__ for u in numpy_table.UFUNCS if not u.signature}
    known = {u.__name__ for u in map(numpy_table.find, table.VALUES) if u is not None}
    assert ufuncs - known - {*table.VALUES} == set(table.OTHERS)
    of_numpy = {*forwarding.forwarded_ufuncs().values()}
    plain = {name.removeprefix("nn.") for name in table.VALUES} | of_numpy | set(table.ELSEWHERE)
    modules = {m.__name__ for m in (activations, angles, arithmetic, bits)}
    composites = {n for n, c in COMPOSITES.items() if c.__module__ in modules}
    assert composites - plain == set()
    assert {n for n, op in all_ops().items() if op.elementwise and not op.view} - plain == set()


def test_every_entry_has_its_derivative_or_none() -> None:
    assert set(table.VALUES) == {*table.SLOPES, *table.FLAT, *table.PARTLY}
    assert all(len(s.true) == 1 + (n in table.BINARY) for n, s in table.SLOPES.items())
