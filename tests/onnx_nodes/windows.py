"""Convolutions and pooling: ONNX has the channels in dim 1, graphc in the last one."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np
from onnx_nodes.table import Call, NotOffered, onnx

from graphc import nn

Pads = list[tuple[int, int]]


def last(x: Any) -> Any:
    """The channels moved to the end."""
    return np.moveaxis(x, 1, -1)


def first(x: Any) -> Any:
    """The channels moved back to dim 1."""
    return np.moveaxis(x, -1, 1)


def options(c: Call, x: Any, sizes: Any) -> tuple[list[int], list[int], Pads]:
    """Strides, dilations and what is padded around each dim."""
    rank = len(sizes)
    strides = list(c.get("strides", [1] * rank))
    dilations = list(c.get("dilations", [1] * rank))
    auto, pads = c.get("auto_pad", b"NOTSET"), c.get("pads", [0] * 2 * rank)
    if auto in (b"NOTSET", b"VALID"):
        return strides, dilations, [(pads[i], pads[rank + i]) for i in range(rank)]
    found: Pads = []
    for n, k, s, d in zip(x.shape[2:], sizes, strides, dilations, strict=True):
        whole = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
        less = whole // 2
        found.append((less, whole - less) if auto == b"SAME_UPPER" else (whole - less, less))
    return strides, dilations, found


@onnx("Conv")
def conv(c: Call, x: Any, w: Any, b: Any = None) -> Any:
    rank, groups = x.ndim - 2, c.get("group", 1)
    strides, dilations, pads = options(c, x, w.shape[2:])
    weights = np.moveaxis(w, (0, 1), (-1, -2))  # out, in, *window -> *window, in, out
    if rank > 2:
        return wide_conv(x, weights, strides, dilations, pads, b)
    run = nn.conv1d if rank == 1 else nn.conv2d
    return first(run(last(x), weights, b, strides, pads, dilations, groups))


def wide_conv(x: Any, w: Any, strides: Any, dilations: Any, pads: Pads, b: Any) -> Any:
    """A convolution over more than two dims, as a product with the windows."""
    rank = x.ndim - 2
    x = np.pad(last(x), [(0, 0), *pads, (0, 0)])
    at = tuple(range(1, rank + 1))
    seen = nn.windows(
        x, at=at, sizes=w.shape[:rank], strides=tuple(strides), dilations=tuple(dilations)
    )
    y = np.tensordot(seen, np.moveaxis(w, -2, 0), rank + 1)
    return first(y if b is None else y + b)


@onnx("ConvTranspose")
def conv_transpose(c: Call, x: Any, w: Any, b: Any = None) -> Any:
    rank, groups = x.ndim - 2, c.get("group", 1)
    sizes = c.get("kernel_shape", w.shape[2:])
    strides, dilations, pads = options(c, x, sizes)
    extra = c.get("output_padding", [0] * rank)
    reach = [(k - 1) * d for k, d in zip(sizes, dilations, strict=True)]
    full = [(n - 1) * s + r + 1 for n, s, r in zip(x.shape[2:], strides, reach, strict=True)]
    auto = c.get("auto_pad", b"NOTSET")
    shape = c.get("output_shape")
    if shape is None and auto in (b"SAME_UPPER", b"SAME_LOWER"):
        shape = [n * s for n, s in zip(x.shape[2:], strides, strict=True)]
    if shape is not None:
        more = [f + e - n for f, e, n in zip(full, extra, shape, strict=True)]
        more = [max(m, 0) for m in more]
        pads = [
            (m - m // 2, m // 2) if auto != b"SAME_UPPER" else (m // 2, m - m // 2) for m in more
        ]
    out = list(shape or (f + e - sum(p) for f, e, p in zip(full, extra, pads, strict=True)))
    y = spread(
        x, w, strides, groups, sizes, dilations, [f + e for f, e in zip(full, extra, strict=True)]
    )
    wide = [max(0, p[0] + n - m) for p, n, m in zip(pads, out, y.shape[2:], strict=True)]
    y = np.pad(y, [(0, 0), (0, 0), *((0, w) for w in wide)])
    cut = tuple(slice(p[0], p[0] + n) for p, n in zip(pads, out, strict=True))
    y = y[(slice(None), slice(None), *cut)]
    return y if b is None else y + np.reshape(b, (1, -1) + (1,) * rank)


def spread(
    x: Any, w: Any, strides: Any, groups: int, sizes: Any, dilations: Any, full: list[int]
) -> Any:
    """The sum over the window's places of the input, times the weights there, moved and spread."""
    n, channels, *lengths = x.shape
    parts = x.reshape(n, groups, channels // groups, *lengths)
    weights = w.reshape(groups, channels // groups, *w.shape[1:])
    result: Any = 0
    for place in product(*(range(k) for k in sizes)):
        y = np.einsum("ngc...,gco->ngo...", parts, weights[(..., *place)])
        y = y.reshape(n, -1, *lengths)
        y = dilated(y, strides)
        before = [p * d for p, d in zip(place, dilations, strict=True)]
        after = [f - b - m for f, b, m in zip(full, before, y.shape[2:], strict=True)]
        result = result + np.pad(y, [(0, 0), (0, 0), *zip(before, after, strict=True)])
    return result


def dilated(x: Any, strides: Any) -> Any:
    """Zeros between the entries."""
    for axis, s in enumerate(strides, start=2):
        if s > 1:
            zeros = np.zeros((*x.shape, s - 1), np.float32)
            wide = np.moveaxis(np.concatenate([x[..., None], zeros], -1), -1, axis + 1)
            n = x.shape[axis]
            x = wide.reshape(*x.shape[:axis], n * s, *x.shape[axis + 1 :])
            x = x[(slice(None),) * axis + (slice(0, (n - 1) * s + 1),)]
    return x


def pooled(c: Call, x: Any, value: float) -> tuple[Any, list[int], Any]:
    """The windows of padded x, whose dims are the last ones; how many of an axis are of x."""
    sizes = c["kernel_shape"]
    strides, dilations, pads = options(c, x, sizes)
    counted = [np.pad(np.ones(n), p) for n, p in zip(x.shape[2:], pads, strict=True)]
    if c.get("ceil_mode"):
        pads = [
            (a, b + more_at_end(n + a + b, k, s, d, n + a))
            for (a, b), n, k, s, d in zip(pads, x.shape[2:], sizes, strides, dilations, strict=True)
        ]
    x = np.pad(x, [(0, 0), (0, 0), *pads], constant_values=value)
    at = tuple(range(2, x.ndim))
    seen = nn.windows(
        x, at=at, sizes=tuple(sizes), strides=tuple(strides), dilations=tuple(dilations)
    )
    return seen, [p[0] for p in pads], (counted, strides, dilations, sizes)


def more_at_end(n: int, k: int, s: int, d: int, data: int) -> int:
    """What a last window that begins within the data lacks."""
    reach = (k - 1) * d + 1
    m = -(-(n - reach) // s) + 1
    m -= (m - 1) * s >= data
    return max((m - 1) * s + reach - n, 0)


@onnx("MaxPool")
def max_pool(c: Call, x: Any) -> Any:
    if c.results > 1:
        raise NotOffered("the places of the largest entries, over all examples")
    least = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
    seen, _, _ = pooled(c, x, least)
    return np.max(seen, axis=tuple(range(x.ndim, seen.ndim)))


@onnx("AveragePool")
def average_pool(c: Call, x: Any) -> Any:
    seen, _, (counted, strides, dilations, sizes) = pooled(c, x, 0)
    total = np.sum(seen, axis=tuple(range(x.ndim, seen.ndim)))
    count: Any = 1.0
    for i, (of, s, d, k) in enumerate(zip(counted, strides, dilations, sizes, strict=True)):
        of = np.ones_like(of) if c.get("count_include_pad") else of
        of = np.concatenate([of, np.zeros(k * d)])
        n = [of[j * s : j * s + (k - 1) * d + 1 : d].sum() for j in range(total.shape[2 + i])]
        count = count * np.reshape(n, (-1,) + (1,) * (len(sizes) - 1 - i))
    return total / np.astype(count, x.dtype)


@onnx("LpPool")
def lp_pool(c: Call, x: Any) -> Any:
    p = c.get("p", 2)
    seen, _, _ = pooled(c, x, 0)
    return np.sum(np.abs(seen) ** p, axis=tuple(range(x.ndim, seen.ndim))) ** (1 / p)


@onnx("GlobalAveragePool")
def global_average_pool(c: Call, x: Any) -> Any:
    return np.mean(x, axis=tuple(range(2, x.ndim)), keepdims=True)


@onnx("GlobalMaxPool")
def global_max_pool(c: Call, x: Any) -> Any:
    return np.max(x, axis=tuple(range(2, x.ndim)), keepdims=True)


@onnx("Col2Im", static=(1, 2))
def col2im(c: Call, x: Any, image: Any, block: Any) -> Any:
    rank, n, k = len(image), x.shape[0], [int(b) for b in block]
    strides, dilations = c.get("strides", [1] * rank), c.get("dilations", [1] * rank)
    pads = c.get("pads", [0] * 2 * rank)
    full = [int(m) + pads[i] + pads[rank + i] for i, m in enumerate(image)]
    counts = [
        (f - (b - 1) * d - 1) // s + 1
        for f, b, s, d in zip(full, k, strides, dilations, strict=True)
    ]
    parts = x.reshape(n, x.shape[1] // prod(k), *k, *counts)
    result: Any = 0
    for place in product(*(range(b) for b in k)):
        y = dilated(parts[(slice(None), slice(None), *place)], strides)
        before = [p * d for p, d in zip(place, dilations, strict=True)]
        after = [f - b - m for f, b, m in zip(full, before, y.shape[2:], strict=True)]
        result = result + np.pad(y, [(0, 0), (0, 0), *zip(before, after, strict=True)])
    cut = tuple(slice(pads[i], pads[i] + int(m)) for i, m in enumerate(image))
    return result[(slice(None), slice(None), *cut)]
