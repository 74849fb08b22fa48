"""Composites give what NumPy gives, on the same arrays."""

from typing import Any

import numpy as np
import pytest

from graphc.ir.builder import Builder, Value
from graphc.ops.composites.shaping import split
from graphc.testing.compute import compute

Array = np.ndarray
Shape = tuple[int, ...]
RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4))
C = RNG.normal(size=(2, 3, 4))
V, W = RNG.normal(size=4), RNG.normal(size=5)
POSITIVE = RNG.uniform(0.2, 3, (3, 4))
UNIT = RNG.uniform(-0.9, 0.9, (3, 4))
BITS = RNG.integers(0, 2, (3, 4)).astype(bool)
INTS = RNG.integers(-5, 6, (3, 4)).astype(np.int32)
BYTES = RNG.integers(0, 256, (3, 4)).astype(np.uint8)


def np_split(x: Array, parts: Any, axis: int) -> Array:
    return np.concatenate([2.0**i * p for i, p in enumerate(np.split(x, parts, axis))], axis)


def gc_split(f: Builder, x: Value, parts: Any, axis: int) -> Value:
    return f.concat([2.0**i * p for i, p in enumerate(split(f, x, parts, axis))], axis=axis)


def np_one_hot(ids: Array, n: int) -> Array:
    return (ids[..., None] == np.arange(n)).astype(np.float32)


# (composite, NumPy, arrays, options of both)
SAME: list[tuple[Any, Any, tuple[Array, ...], dict[str, Any]]] = [
    # indices of one byte, and more places than they can count
    *[("one_hot", np_one_hot, (x,), {"n": n}) for x in (BITS, BYTES) for n in (3, 300)],
    # reductions
    *[("sum", np.sum, (C,), {"axis": a}) for a in (None, 0, -1, (0, 2), (-1, 1), ())],
    *[("sum", np.sum, (C,), {"axis": a, "keepdims": True}) for a in (None, 1, (0, 2))],
    *[("mean", np.mean, (C,), {"axis": a}) for a in (None, 0, -1, (0, 2))],
    ("mean", np.mean, (C,), {"axis": (0, -1), "keepdims": True}),
    ("mean", np.mean, (INTS,), {}),
    ("mean", np.mean, (BITS,), {"axis": 0}),
    ("var", np.var, (C,), {"axis": 1}),
    ("var", np.var, (C,), {"ddof": 1}),
    ("std", np.std, (C,), {"axis": (0, 1), "keepdims": True}),
    ("max", np.max, (C,), {"axis": 1}),
    ("max", np.max, (C,), {"keepdims": True}),
    ("min", np.min, (INTS,), {"axis": -1}),
    ("any", np.any, (BITS,), {"axis": 0}),
    ("all", np.all, (INTS,), {"axis": 1, "keepdims": True}),
    ("prod", np.prod, (C,), {"axis": 1}),
    ("prod", np.prod, (W,), {}),
    ("prod", np.prod, (C,), {"axis": (0, 2), "keepdims": True}),
    ("prod", np.prod, (C[:, :0],), {"axis": 1}),
    ("argmax", np.argmax, (C,), {"axis": -1}),
    ("argmax", np.argmax, (C,), {}),
    ("argmin", np.argmin, (INTS,), {"axis": 0, "keepdims": True}),
    ("median", np.median, (C,), {"axis": 1}),
    ("median", np.median, (C,), {"axis": 2}),
    ("median", np.median, (C,), {}),
    # arithmetic
    *[(n, getattr(np, n), (A,), {}) for n in (
        "square", "exp2", "cbrt", "ceil", "trunc", "isnan", "isinf", "sinh", "cosh", "arctan",
        "tan", "arcsinh", "deg2rad", "rad2deg", "reciprocal", "abs", "floor", "round", "sign",
    )],
    *[(n, getattr(np, n), (POSITIVE,), {}) for n in ("log2", "log10", "sqrt", "log")],
    *[(n, getattr(np, n), (UNIT,), {}) for n in ("arcsin", "arccos", "arctanh")],
    ("arccosh", np.arccosh, (POSITIVE + 1,), {}),
    *[(n, getattr(np, n), (A, B), {}) for n in ("hypot", "logaddexp", "maximum", "arctan2")],
    ("rsqrt", lambda x: 1 / np.sqrt(x), (POSITIVE,), {}),
    ("invert", np.invert, (INTS,), {}),
    ("invert", np.invert, (BITS,), {}),
    ("invert", np.invert, (BYTES,), {}),
    ("where", np.where, (BITS, A, B), {}),
    ("where", np.where, (BITS, V, A[:, :1]), {}),
    *[
        (lambda f, x, p=p: x**p, lambda x, p=p: x**p, (POSITIVE,), {})
        for p in (0, 1, 2, 3, 7, -1, 0.5, 2.5, -2, 11)
    ],
    *[(lambda f, x, p=p: x**p, lambda x, p=p: x**p, (INTS,), {}) for p in (0, 1, 2, 5)],
    (lambda f, x: 2.0**x, lambda x: 2.0**x, (A,), {}),
    (lambda f, x: f.clip(x, -0.5, 0.5), lambda x: np.clip(x, -0.5, 0.5), (A,), {}),
    (lambda f, x: f.clip(x, high=0), lambda x: np.clip(x, None, 0), (A,), {}),
    # shapes
    (lambda f, x: f.reshape(x, (-1, 6)), lambda x: x.reshape(-1, 6), (C,), {}),
    (lambda f, x: f.reshape(x, -1), lambda x: x.reshape(-1), (C,), {}),
    (lambda f, x: f.flatten(x, keep=1), lambda x: x.reshape(2, 12), (C,), {}),
    ("transpose", np.transpose, (C,), {}),
    (lambda f, x: f.transpose(x, (1, -1, 0)), lambda x: x.transpose(1, 2, 0), (C,), {}),
    (lambda f, x: f.swapaxes(x, 0, -1), lambda x: np.swapaxes(x, 0, -1), (C,), {}),
    (lambda f, x: f.moveaxis(x, 0, -1), lambda x: np.moveaxis(x, 0, -1), (C,), {}),
    ("moveaxis", np.moveaxis, (C,), {"source": (0, 1), "destination": (2, 0)}),
    ("expand_dims", np.expand_dims, (C,), {"axis": (0, -1)}),
    ("squeeze", np.squeeze, (C[:1, :, :1],), {}),
    ("squeeze", np.squeeze, (C[:1, :, :1],), {"axis": -1}),
    (lambda f, *xs: f.concat(xs, axis=1), lambda *xs: np.concatenate(xs, 1), (A, B, A[:, :1]), {}),
    (lambda f, *xs: f.concat(*xs), lambda *xs: np.concatenate(xs), (A, INTS), {}),
    *[
        (lambda f, *xs, a=a: f.stack(xs, axis=a), lambda *xs, a=a: np.stack(xs, a), (A, B), {})
        for a in (0, 1, -1)
    ],
    (gc_split, np_split, (C,), {"parts": 2, "axis": -1}),
    (gc_split, np_split, (C,), {"parts": [1, 1, 3], "axis": 2}),
    *[
        (lambda f, x, n=n: f.tile(x, n), lambda x, n=n: np.tile(x, n), (A,), {})
        for n in (2, (2, 1), (2, 1, 3), (0, 1))
    ],
    *[
        (lambda f, x, a=a: f.repeat(x, 3, a), lambda x, a=a: np.repeat(x, 3, a), (A,), {})
        for a in (None, 0, -1)
    ],
    *[("flip", np.flip, (C,), {"axis": a}) for a in (None, 1, (0, -1))],
    *[
        ("roll", np.roll, (C,), {"shift": s, "axis": a})
        for s, a in ((1, 1), (-5, 2), (0, 0), (7, None))
    ],
    *[
        (lambda f, x, w=w: f.pad(x, w), lambda x, w=w: np.pad(x, w), (A,), {})
        for w in (1, (2, 0), ((1, 0), (0, 2)))
    ],
    (lambda f, x: f.pad(x, 1, 9), lambda x: np.pad(x, 1, constant_values=9), (INTS,), {}),
    (lambda f, x: f.pad(x, 1, -np.inf), lambda x: np.pad(x, 1, constant_values=-np.inf), (A,), {}),
    *[("tril", np.tril, (C,), {"k": k}) for k in (-1, 0, 2)],
    *[("triu", np.triu, (A,), {"k": k}) for k in (-1, 0, 2)],
    # picking
    *[("cumsum", np.cumsum, (C,), {"axis": a}) for a in (None, 0, -1)],
    ("cumsum", np.cumsum, (BITS,), {"axis": 1}),
    *[("sort", np.sort, (C,), {"axis": a}) for a in (0, -1)],
    ("argsort", np.argsort, (C,), {"axis": 1}),
    ("diff", np.diff, (C,), {"axis": 1}),
    ("take", np.take, (C, np.array([[0, -1], [1, 1]])), {"axis": 1}),
    ("take", np.take, (C, np.array([0, -1, 23])), {}),
    ("take_along_axis", np.take_along_axis, (A, np.array([[0, -1], [1, 1], [3, 2]])), {"axis": 1}),
    (lambda f, x: f.trace(x), np.trace, (A[:, :3],), {}),
    (lambda f, x: f.diagonal(x), np.diagonal, (A[:, :3],), {}),
    # products
    ("dot", np.dot, (A, V), {}),
    ("dot", np.dot, (V, V), {}),
    ("dot", np.dot, (C, RNG.normal(size=(2, 4, 3))), {}),
    ("inner", np.inner, (A, C), {}),
    ("outer", np.outer, (A, W), {}),
    ("tensordot", np.tensordot, (C, RNG.normal(size=(4, 3, 2))), {"axes": ((1, 2), (1, 0))}),
    ("tensordot", np.tensordot, (C, RNG.normal(size=(3, 4, 5))), {"axes": 2}),
    ("tensordot", np.tensordot, (A, W), {"axes": 0}),
    # creation
    (lambda f: f.arange(5), lambda: np.arange(5), (), {}),
    (lambda f: f.arange(2, 9, 3), lambda: np.arange(2, 9, 3), (), {}),
    (lambda f: f.arange(5, 0, -2), lambda: np.arange(5, 0, -2), (), {}),
    (lambda f: f.arange(0.0, 1.0, 0.25), lambda: np.arange(0.0, 1.0, 0.25), (), {}),
    (lambda f: f.linspace(-1, 1, 5), lambda: np.linspace(-1, 1, 5), (), {}),
    (lambda f: f.eye(3, 4, 1), lambda: np.eye(3, 4, 1), (), {}),
    (lambda f: f.full((2, 3), 7), lambda: np.full((2, 3), 7), (), {}),
    (lambda f: f.zeros((2, 0)), lambda: np.zeros((2, 0)), (), {}),
    (lambda f: f.ones(3), lambda: np.ones(3), (), {}),
]  # fmt: skip


def label(case: tuple[Any, ...]) -> str:
    name = case[0] if isinstance(case[0], str) else getattr(case[1], "__name__", "")
    return f"{name}-{case[3]}"


@pytest.mark.parametrize("ours, theirs, arrays, options", SAME, ids=map(label, SAME))
def test_composite_agrees_with_numpy(
    ours: Any, theirs: Any, arrays: tuple[Array, ...], options: dict[str, Any]
) -> None:
    def call(f: Builder, *xs: Value) -> Any:
        return (
            getattr(f, ours)(*xs, **options) if isinstance(ours, str) else ours(f, *xs, **options)
        )

    y = compute(call, *arrays)
    expected = np.asarray(theirs(*arrays, **options))
    assert y.shape == expected.shape
    single = y.dtype == np.float32
    np.testing.assert_allclose(
        y, expected, rtol=1e-5 if single else 1e-12, atol=1e-6 if single else 1e-12
    )


MATMUL = [
    ((3, 4), (4, 5)), ((4,), (4,)), ((4,), (4, 5)), ((3, 4), (4,)), ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)), ((3, 4), (2, 4, 5)), ((2, 1, 3, 4), (6, 4, 5)), ((1, 3, 4), (2, 4, 5)),
    ((2, 3, 4), (1, 4, 5)), ((1, 3, 4), (1, 4, 5)), ((4,), (2, 4, 5)), ((2, 3, 4), (4,)),
    ((2, 1, 1, 4), (1, 3, 4, 1)), ((3, 0), (0, 5)), ((0, 4), (4, 5)),
]  # fmt: skip


@pytest.mark.parametrize("a, b", MATMUL)
def test_matmul_is_numpys(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = RNG.normal(size=a), RNG.normal(size=b)
    np.testing.assert_allclose(compute(lambda f, p, q: f.matmul(p, q), x, y), x @ y, atol=1e-12)


EINSUM = [
    ("ij,jk->ik", [(3, 4), (4, 5)]), ("ij,jk", [(3, 4), (4, 5)]), ("ij->ji", [(3, 4)]),
    ("ij->", [(3, 4)]), ("ii->i", [(3, 3)]), ("ii", [(3, 3)]), ("i,i,i->i", [(3,)] * 3),
    ("ij,jk,kl->il", [(3, 4), (4, 5), (5, 2)]), ("bi,bo,io->b", [(2, 3), (2, 4), (3, 4)]),
    ("ij,kl->", [(2, 3), (4, 5)]), ("iij,jk->ki", [(3, 3, 4), (4, 2)]),
    ("a,b,c->cab", [(2,), (3,), (4,)]),
    ("ij,j->i", [(3, 4), (4,)]), (",i->i", [(), (3,)]), ("i,->i", [(3,), ()]), ("ba", [(3, 4)]),
    ("bqd,bkd->bqk", [(2, 3, 4), (2, 5, 4)]), ("abc,cd,ab->d", [(2, 3, 4), (4, 5), (2, 3)]),
]  # fmt: skip


@pytest.mark.parametrize("spec, shapes", EINSUM)
def test_einsum_of_any_number_of_operands_is_numpys(
    spec: str, shapes: list[tuple[int, ...]]
) -> None:
    xs = [RNG.normal(size=s) for s in shapes]
    y = compute(lambda f, *values: f.einsum(spec, *values), *xs)
    np.testing.assert_allclose(y, np.einsum(spec, *xs), atol=1e-12)


KEYS: list[Any] = [
    0, -1, slice(1, 3), slice(None, None, -1), slice(None, None, 2), slice(5, 0, -2), ..., None,
    (0, 1), (slice(None), 2), (..., 0), (..., slice(1, None), None), (None, 0, ..., None, -1),
    (slice(2, 2), ...), (1, slice(None), slice(-3, -1)),
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_indexing_is_numpys(key: Any) -> None:
    x = RNG.normal(size=(4, 5, 6))
    assert np.array_equal(compute(lambda f, v: f.getitem(v, key), x), x[key])


I, J = np.array([0, -1, 2]), np.array([[1], [3]])


@pytest.mark.parametrize(
    "key",
    [
        lambda i, j: i,
        lambda i, j: (i, j),
        lambda i, j: (slice(None), i),
        lambda i, j: (slice(1, 3), i, j),
        lambda i, j: (..., j),
        lambda i, j: (None, i, j, 0),
        lambda i, j: (0, i),
    ],
)
def test_indexing_by_tensors_is_numpys(key: Any) -> None:
    x = RNG.normal(size=(4, 5, 6))
    y = compute(lambda f, v, i, j: f.getitem(v, key(i, j)), x, I, J)
    assert np.array_equal(y, x[key(I, J)])


def test_attention_over_no_features_gives_none() -> None:
    empty = np.zeros((2, 3, 0), np.float32)
    made = compute(lambda f, x: f.attention(x, x, x, causal=True), empty)
    assert np.asarray(made).shape == empty.shape
