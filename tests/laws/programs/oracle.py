"""What graphc.nn's windows, norms and losses are in NumPy: literal, slow, and nobody's else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import ceil
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def softplus(x: Array) -> Array:
    return np.logaddexp(x, 0)


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def softmax(x: Array, axis: Any = -1) -> Array:
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return np.asarray(e / np.sum(e, axis=axis, keepdims=True))


def logsumexp(x: Array, axis: Any = None, keepdims: bool = False) -> Array:
    return np.asarray(np.log(np.sum(np.exp(x), axis=axis, keepdims=keepdims)))


def log_softmax(x: Array, axis: Any = -1) -> Array:
    shifted = x - np.max(x, axis=axis, keepdims=True)  # NaN beside an infinity, as softmax is
    return np.asarray(shifted - logsumexp(shifted, axis, keepdims=True))


def layer_norm(x: Array, axis: Any = -1) -> Array:
    spread = np.var(x, axis=axis, keepdims=True) + 1e-5
    return np.asarray((x - np.mean(x, axis=axis, keepdims=True)) / np.sqrt(spread))


def rms_norm(x: Array, axis: Any = -1) -> Array:
    return np.asarray(x / np.sqrt(np.mean(x * x, axis=axis, keepdims=True) + 1e-6))


def cross_entropy(logits: Array, labels: Array) -> Array:
    chosen = np.take_along_axis(log_softmax(logits), labels[..., None].astype(np.int64), -1)
    return -chosen[..., 0]


def embedding(table: Array, ids: Array) -> Array:
    return np.take(table, ids, axis=0)


def one_hot(ids: Array, n: int) -> Array:
    return np.asarray(ids[..., None] == np.arange(n)).astype(np.float32)


def attention(q: Array, k: Array, v: Array, causal: bool = False) -> Array:
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    return np.asarray(softmax(scores) @ v)


# -- windows --------------------------------------------------------------------------------------


def conv1d(x: Array, w: Array, **options: Any) -> Array:
    return _conv(x, w, 1, **options)


def conv2d(x: Array, w: Array, **options: Any) -> Array:
    return _conv(x, w, 2, **options)


def _conv(
    x: Array, w: Array, rank: int, stride: int = 1, padding: Any = "same", dilation: int = 1,
    groups: int = 1,
) -> Array:  # fmt: skip
    x = _padded(x, w.shape[:rank], stride, padding, dilation, 0)
    places = _places(x, w.shape[:rank], stride, dilation)
    y = np.zeros((len(x), *places, w.shape[-1]), np.result_type(x, w))
    per, out = w.shape[-2], w.shape[-1] // groups
    for at in product(*map(range, places)):
        for tap in product(*map(range, w.shape[:rank])):
            seen = x[(slice(None), *_where(at, tap, stride, dilation))]
            for g in range(groups):
                some = slice(g * out, (g + 1) * out)
                y[(slice(None), *at, some)] += seen[:, g * per : (g + 1) * per] @ w[tap][:, some]
    return y


def max_pool(x: Array, size: int = 2, stride: int | None = None, padding: Any = "valid") -> Array:
    return _pooled(x, size, stride or size, padding, -np.inf, np.max)


def avg_pool(x: Array, size: int = 2, stride: int | None = None, padding: Any = "valid") -> Array:
    total = _pooled(x, size, stride or size, padding, 0, np.sum)
    return np.asarray(total / _pooled(np.ones_like(x), size, stride or size, padding, 0, np.sum))


def _pooled(
    x: Array, size: int, stride: int, padding: Any, fill: float, fold: Callable[..., Any]
) -> Array:
    sizes = (size, size)
    x = _padded(x, sizes, stride, padding, 1, fill)
    places = _places(x, sizes, stride, 1)
    y = np.zeros((len(x), *places, x.shape[-1]), x.dtype)
    for at in product(*map(range, places)):
        window = tuple(slice(i * stride, i * stride + size) for i in at)
        y[(slice(None), *at)] = fold(x[(slice(None), *window)], axis=(1, 2))
    return y


def _padded(
    x: Array, sizes: Sequence[int], stride: int, padding: Any, dilation: int, fill: float
) -> Array:
    widths = []
    for n, size in zip(x.shape[1:], sizes, strict=False):
        reach = (size - 1) * dilation + 1
        total = max(0, (ceil(n / stride) - 1) * stride + reach - n)
        match padding:
            case "valid":
                widths.append((0, 0))
            case "same":
                widths.append((total // 2, total - total // 2))
            case _:
                widths.append((padding, padding))
    return np.pad(x, [(0, 0), *widths, (0, 0)], constant_values=fill)


def _places(x: Array, sizes: Sequence[int], stride: int, dilation: int) -> tuple[int, ...]:
    lengths = zip(x.shape[1:], sizes, strict=False)
    places = tuple((n - (k - 1) * dilation - 1) // stride + 1 for n, k in lengths)
    if min(places) < 1:
        raise ValueError("a window is longer than what it goes over")
    return places


def _where(
    at: tuple[int, ...], tap: tuple[int, ...], stride: int, dilation: int
) -> tuple[int, ...]:
    return tuple(i * stride + p * dilation for i, p in zip(at, tap, strict=True))
