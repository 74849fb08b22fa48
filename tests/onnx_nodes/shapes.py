"""Dims, slices, joins, lookups, casts."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper
from onnx_nodes.table import Call, NotOffered, ints, onnx

from graphc import nn


def dtype_of(code: int) -> Any:
    """The NumPy dtype of an ONNX element type. Raises NotOffered for one that graphc lacks."""
    dtype = helper.tensor_dtype_to_np_dtype(code)
    if dtype.name not in OFFERED:
        raise NotOffered(f"no dtype {TensorProto.DataType.Name(code).lower()}")
    return dtype


OFFERED = {"float64", "float32", "float16", "bfloat16", "int64", "int32", "uint8", "bool"}


@onnx("Cast")
def cast(c: Call, x: Any) -> Any:
    return np.astype(x, dtype_of(c["to"]))


@onnx("CastLike")
def cast_like(c: Call, x: Any, like: Any) -> Any:
    return np.astype(x, like.dtype)


@onnx("Shape")
def shape(c: Call, x: Any) -> Any:
    return np.array(x.shape[c.get("start", 0) : c.get("end")], np.int64)


@onnx("Size")
def size(c: Call, x: Any) -> Any:
    return np.array(int(np.prod(x.shape)), np.int64)


@onnx("Constant")
def constant(c: Call) -> Any:
    ((name, value),) = c.attributes.items()
    if name in ("value_int", "value_ints"):
        return np.array(value, np.int64)
    return np.array(value, np.float32) if name in ("value_float", "value_floats") else value


@onnx("ConstantOfShape", static=(0,))
def constant_of_shape(c: Call, shape: Any) -> Any:
    value = c.get("value", np.zeros(1, np.float32))
    return np.full(ints(shape), value[0], value.dtype)


@onnx("EyeLike")
def eye_like(c: Call, x: Any) -> Any:
    dtype = dtype_of(c["dtype"]) if c.get("dtype") else x.dtype
    return np.eye(*x.shape, k=c.get("k", 0), dtype=dtype)


@onnx("Range", static=(0, 1, 2))
def range_(c: Call, start: Any, limit: Any, delta: Any) -> Any:
    return np.arange(start, limit, delta, dtype=start.dtype)


@onnx("Reshape", static=(1,))
def reshape(c: Call, x: Any, shape: Any = None) -> Any:
    shape = ints(c["shape"] if shape is None else shape)
    if not c.get("allowzero"):
        shape = [n or x.shape[i] for i, n in enumerate(shape)]
    return x.reshape(shape)


@onnx("Flatten")
def flatten(c: Call, x: Any) -> Any:
    axis = c.get("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:])))


@onnx("Squeeze", static=(1,))
def squeeze(c: Call, x: Any, axes: Any = None) -> Any:
    axes = c.get("axes") if axes is None else axes
    return np.squeeze(x) if axes is None else np.squeeze(x, tuple(ints(axes)))


@onnx("Unsqueeze", static=(1,))
def unsqueeze(c: Call, x: Any, axes: Any = None) -> Any:
    return np.expand_dims(x, tuple(ints(c["axes"] if axes is None else axes)))


@onnx("Transpose")
def transpose(c: Call, x: Any) -> Any:
    return np.transpose(x, c.get("perm"))


@onnx("Expand", static=(1,))
def expand(c: Call, x: Any, shape: Any) -> Any:
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(ints(shape))))


@onnx("Tile", static=(1,))
def tile(c: Call, x: Any, repeats: Any) -> Any:
    return np.tile(x, ints(repeats))


@onnx("Concat")
def concat(c: Call, *xs: Any) -> Any:
    return np.concatenate(xs, axis=c["axis"])


@onnx("Split", static=(1,))
def split(c: Call, x: Any, sizes: Any = None) -> Any:
    axis = c.get("axis", 0)
    sizes = c.get("split") if sizes is None else sizes
    if sizes is None:
        each = -(-x.shape[axis] // c.results)
        return tuple(np.split(x, [each * i for i in range(1, c.results)], axis))
    return tuple(np.split(x, [int(n) for n in np.cumsum(ints(sizes))[:-1]], axis))


@onnx("Slice", static=(1, 2, 3, 4))
def slice_(c: Call, x: Any, start: Any, stop: Any, axes: Any = None, steps: Any = None) -> Any:
    cuts = [slice(None)] * x.ndim
    steps = [1] * len(start) if steps is None else ints(steps)
    for a, i, j, s in zip(
        range(len(start)) if axes is None else ints(axes),
        ints(start),
        ints(stop),
        steps,
        strict=True,
    ):
        below = s < 0 and j < -x.shape[a]
        cuts[a] = slice(i, None if below else j, s)
    return x[tuple(cuts)]


@onnx("Pad", static=(1, 3))
def pad(c: Call, x: Any, pads: Any, value: Any = None, axes: Any = None) -> Any:
    mode = c.get("mode", b"constant").decode()
    widths = [[0, 0] for _ in x.shape]
    which = range(x.ndim) if axes is None else ints(axes)
    half = len(pads) // 2
    for a, i, j in zip(which, ints(pads[:half]), ints(pads[half:]), strict=True):
        widths[a] = [i, j]
    if mode != "constant":
        return np.pad(x, widths, mode)
    if value is None:
        return np.pad(x, widths)
    inside = [(max(i, 0), max(j, 0)) for i, j in widths]
    cut = tuple(
        slice(max(-i, 0), n - max(-j, 0)) for (i, j), n in zip(widths, x.shape, strict=True)
    )
    x = x[cut]
    return np.where(np.pad(np.ones(x.shape, bool), inside), np.pad(x, inside), value)


@onnx("CenterCropPad", static=(1,))
def center_crop_pad(c: Call, x: Any, shape: Any) -> Any:
    axes = c.get("axes", range(x.ndim))
    widths, cuts = [(0, 0)] * x.ndim, [slice(None)] * x.ndim
    for a, n in zip(axes, ints(shape), strict=True):
        over, m = x.shape[a] - n, x.shape[a]
        if over >= 0:
            cuts[a] = slice(over // 2, over // 2 + n)
        else:
            widths[a] = (-over // 2, n - m - (-over // 2))
    return np.pad(x[tuple(cuts)], widths)


@onnx("DepthToSpace")
def depth_to_space(c: Call, x: Any) -> Any:
    (n, d, h, w), b = x.shape, c["blocksize"]
    if c.get("mode", b"DCR") == b"DCR":
        y = x.reshape(n, b, b, d // b**2, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        y = x.reshape(n, d // b**2, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return y.reshape(n, d // b**2, h * b, w * b)


@onnx("SpaceToDepth")
def space_to_depth(c: Call, x: Any) -> Any:
    (n, d, h, w), b = x.shape, c["blocksize"]
    order = (0, 1, 3, 5, 2, 4) if c.get("mode") == b"CRD" else (0, 3, 5, 1, 2, 4)
    y = x.reshape(n, d, h // b, b, w // b, b).transpose(order)
    return y.reshape(n, d * b * b, h // b, w // b)


@onnx("Trilu", static=(1,))
def trilu(c: Call, x: Any, k: Any = None) -> Any:
    k = 0 if k is None else int(k)
    return np.triu(x, k) if c.get("upper", 1) else np.tril(x, k)


@onnx("OneHot", static=(1, 2))
def one_hot(c: Call, ids: Any, depth: Any, values: Any) -> Any:
    n, axis = int(np.ravel(depth)[0]), c.get("axis", -1)
    hot = nn.one_hot(np.astype(np.mod(ids, n), np.int32), n)  # negative ids count from the end
    valid = np.logical_and(ids >= -n, ids < n)
    y = np.where(np.logical_and(hot > 0, valid[..., None]), values[1], values[0])
    return np.moveaxis(np.astype(y, values.dtype), -1, axis)


# -- lookups --------------------------------------------------------------------------------------


@onnx("Gather")
def gather(c: Call, x: Any, ids: Any) -> Any:
    return np.take(x, ids, axis=c.get("axis", 0))


@onnx("GatherElements")
def gather_elements(c: Call, x: Any, ids: Any) -> Any:
    axis = c.get("axis", 0)
    return np.take_along_axis(x, np.where(ids < 0, ids + x.shape[axis], ids), axis)


@onnx("GatherND")
def gather_nd(c: Call, x: Any, ids: Any) -> Any:
    b, n = c.get("batch_dims", 0), ids.shape[-1]
    shape = ids.shape[:-1]
    grid = np.meshgrid(*(np.arange(m) for m in shape[:b]), indexing="ij")
    lead = tuple(g.reshape(g.shape + (1,) * (len(shape) - b)) for g in grid)
    return x[lead + tuple(ids[..., i] for i in range(n))]


@onnx("ArrayFeatureExtractor")
def array_feature_extractor(c: Call, x: Any, ids: Any) -> Any:
    return np.take(x, np.ravel(ids), axis=-1)


@onnx("ReverseSequence")
def reverse_sequence(c: Call, x: Any, lengths: Any) -> Any:
    t, b = c.get("time_axis", 0), c.get("batch_axis", 1)
    when = np.arange(x.shape[t], dtype=np.int32).reshape(-1, 1)
    lengths = np.astype(lengths, np.int32)[None]
    ids = np.where(when < lengths, lengths - 1 - when, when)  # time by batch
    moved = np.moveaxis(x, (t, b), (0, 1))
    ids = ids.reshape(ids.shape + (1,) * (x.ndim - 2))
    y = np.take_along_axis(moved, np.broadcast_to(ids, moved.shape), 0)
    return np.moveaxis(y, (0, 1), (t, b))


def places(x: Any, ids: Any, axis: int) -> Any:
    """For each entry of `ids`, where in flattened x the entry lies that it names along an axis."""
    strides = [int(np.prod(x.shape[a + 1 :])) for a in range(x.ndim)]
    flat: Any = np.where(ids < 0, ids + x.shape[axis], ids) * strides[axis]
    for a, s in enumerate(strides):
        if a != axis:
            own = np.arange(ids.shape[a], dtype=np.int32) * s
            flat = flat + own.reshape((-1,) + (1,) * (x.ndim - 1 - a))
    return flat


def scattered(c: Call, x: Any, at: Any, updates: Any) -> Any:
    """Updates put at places of flattened x: all are different, unless they are added."""
    flat, at, updates = np.ravel(x), np.ravel(at), np.ravel(updates)
    hit = np.astype(at, np.int32)[:, None] == np.arange(flat.shape[0], dtype=np.int32)
    match c.get("reduction", b"none"):
        case b"none":
            new = np.sum(np.where(hit, updates[:, None], 0), axis=0)
            flat = np.where(np.any(hit, axis=0), new, flat)
        case b"add":
            flat = flat + np.sum(np.where(hit, updates[:, None], 0), axis=0)
        case b"mul":
            flat = flat * np.prod(np.where(hit, updates[:, None], 1), axis=0)
        case b"max":
            flat = np.maximum(flat, np.max(np.where(hit, updates[:, None], -np.inf), axis=0))
        case _:
            flat = np.minimum(flat, np.min(np.where(hit, updates[:, None], np.inf), axis=0))
    return np.astype(flat, x.dtype).reshape(x.shape)


@onnx("ScatterElements", "Scatter")
def scatter_elements(c: Call, x: Any, ids: Any, updates: Any) -> Any:
    axis = c.get("axis", 0)
    return scattered(c, x, places(x, ids, axis + x.ndim if axis < 0 else axis), updates)


@onnx("ScatterND")
def scatter_nd(c: Call, x: Any, ids: Any, updates: Any) -> Any:
    n = ids.shape[-1]
    size = int(np.prod(x.shape[n:]))
    flat: Any = 0
    for i in range(n):
        one = np.where(ids[..., i] < 0, ids[..., i] + x.shape[i], ids[..., i])
        flat = flat + one * int(np.prod(x.shape[i + 1 : n]))
    flat = np.astype(flat, np.int32)[..., None] * size + np.arange(size, dtype=np.int32)
    return scattered(c, x, flat, updates)


@onnx("TopK", static=(1,))
def top_k(c: Call, x: Any, k: Any) -> Any:
    return nn.top_k(x, int(k[0]), c.get("axis", -1), bool(c.get("largest", 1)))
