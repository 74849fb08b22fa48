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
    run = {1: nn.conv1d, 2: nn.conv2d, 3: nn.conv3d}[rank]
    return first(run(last(x), weights, b, strides, pads, dilations, groups))


@onnx("ConvTranspose")
def conv_transpose(c: Call, x: Any, w: Any, b: Any = None) -> Any:
    rank = x.ndim - 2
    sizes = c.get("kernel_shape", w.shape[2:])
    strides, dilations, pads = options(c, x, sizes)
    extra = list(c.get("output_padding", [0] * rank))
    reach = [(k - 1) * d + 1 for k, d in zip(sizes, dilations, strict=True)]
    full = [(n - 1) * s + r for n, s, r in zip(x.shape[2:], strides, reach, strict=True)]
    auto = c.get("auto_pad", b"NOTSET")
    shape = c.get("output_shape")
    if shape is None and auto in (b"SAME_UPPER", b"SAME_LOWER"):
        shape = [n * s for n, s in zip(x.shape[2:], strides, strict=True)]
    if shape is not None:
        more = [f + e - n for f, e, n in zip(full, extra, shape, strict=True)]
        extra = [max(e, -m) for e, m in zip(extra, more, strict=True)]
        more = [max(m, 0) for m in more]
        pads = [
            (m - m // 2, m // 2) if auto != b"SAME_UPPER" else (m // 2, m - m // 2) for m in more
        ]
    weights = np.moveaxis(w, (0, 1), (-2, -1))  # in, out, *window -> *window, in, out
    run = {1: nn.conv_transpose1d, 2: nn.conv_transpose2d, 3: nn.conv_transpose3d}[rank]
    groups = c.get("group", 1)
    return first(run(last(x), weights, b, strides, pads, dilations, groups, extra))


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


def pooling(c: Call, x: Any) -> dict[str, Any]:
    """The options of a pooling."""
    sizes = list(c["kernel_shape"])
    strides, dilations, pads = options(c, x, sizes)
    return {
        "size": sizes, "stride": strides, "padding": pads, "dilation": dilations,
        "ceil_mode": bool(c.get("ceil_mode", 0)),
    }  # fmt: skip


@onnx("MaxPool")
def max_pool(c: Call, x: Any) -> Any:
    if c.results > 1:
        raise NotOffered("the places of the largest entries, over all examples")
    return first(nn.max_pool(last(x), **pooling(c, x)))


@onnx("AveragePool")
def average_pool(c: Call, x: Any) -> Any:
    counted = bool(c.get("count_include_pad"))
    return first(nn.avg_pool(last(x), **pooling(c, x), count_include_pad=counted))


@onnx("LpPool")
def lp_pool(c: Call, x: Any) -> Any:
    p = c.get("p", 2)
    sizes = c["kernel_shape"]
    strides, dilations, pads = options(c, x, sizes)
    x = np.pad(x, [(0, 0), (0, 0), *pads])
    at = tuple(range(2, x.ndim))
    seen = nn.windows(
        x, at=at, sizes=tuple(sizes), strides=tuple(strides), dilations=tuple(dilations)
    )
    return np.sum(np.abs(seen) ** p, axis=tuple(range(x.ndim, seen.ndim))) ** (1 / p)


@onnx("GlobalAveragePool")
def global_average_pool(c: Call, x: Any) -> Any:
    return np.mean(x, axis=tuple(range(2, x.ndim)), keepdims=True)


@onnx("GlobalMaxPool")
def global_max_pool(c: Call, x: Any) -> Any:
    shape = (*x.shape[:2], *(1 for _ in x.shape[2:]))
    return nn.global_max_pool(last(x)).reshape(shape)


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


# -- resizing --------------------------------------------------------------------------------------


@onnx("Resize", static=(1, 2, 3))
def resize(c: Call, x: Any, roi: Any = None, scales: Any = None, sizes: Any = None) -> Any:
    axes = [a % x.ndim for a in c.get("axes", range(x.ndim))]
    given = scales if sizes is None else sizes
    wanted = dict(zip(axes, (float(v) for v in given), strict=True))
    if sizes is None:
        wanted = {a: x.shape[a] * s for a, s in wanted.items()}
    lengths = [wanted.get(a, x.shape[a]) for a in range(x.ndim)]
    mode, place = c.get("mode", b"nearest"), c.get("coordinate_transformation_mode", b"half_pixel")
    plain = place in (b"half_pixel", b"align_corners") and not c.get("antialias")
    rounded = c.get("nearest_mode", b"round_prefer_floor") != b"round_prefer_floor"
    if (
        not plain
        or c.get("exclude_outside")
        or c.get("keep_aspect_ratio_policy", b"stretch") != b"stretch"
    ):
        raise NotOffered("resizing with other places, antialiasing, or a kept aspect ratio")
    whole = all(n % m == 0 for n, m in zip(lengths, x.shape, strict=True))
    if mode == b"nearest" and (rounded or place != b"half_pixel" or not whole):
        raise NotOffered("nearest entries, rounded otherwise")
    if any(n != int(n) for n in lengths) or c.get("cubic_coeff_a", -0.75) != -0.75:
        raise NotOffered("scales that give no whole lengths, other cubic kernels")
    y = nn.resize(
        x[..., None][None], [int(n) for n in lengths], mode.decode(), place != b"half_pixel"
    )
    return y[0, ..., 0]


@onnx("Upsample", static=(1,))
def upsample(c: Call, x: Any, scales: Any) -> Any:
    return resize(c, x, None, scales)
