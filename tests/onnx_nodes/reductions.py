"""Sums, products, largest entries, running sums, matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx_nodes.table import Call, NotOffered, ints, onnx

from graphc import nn

REDUCE: dict[str, Callable[..., Any]] = {
    "ReduceL1": lambda x, **o: np.sum(np.abs(x), **o),
    "ReduceL2": lambda x, **o: np.sqrt(np.sum(np.square(x), **o)),
    "ReduceLogSum": lambda x, **o: np.log(np.sum(x, **o)),
    "ReduceLogSumExp": lambda x, **o: nn.logsumexp(x, **o),
    "ReduceMax": np.max,
    "ReduceMean": np.mean,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
    "ReduceSum": np.sum,
    "ReduceSumSquare": lambda x, **o: np.sum(np.square(x), **o),
}


@onnx(*REDUCE, static=(1,))
def reduce_(c: Call, x: Any, axes: Any = None) -> Any:
    axes = c.get("axes") if axes is None else axes
    if axes is None or len(axes) == 0:
        if c.get("noop_with_empty_axes"):
            return REDUCE[c.type](x[None], axis=0, keepdims=False)
        axes = None
    axis = None if axes is None else tuple(ints(axes))
    return REDUCE[c.type](x, axis=axis, keepdims=bool(c.get("keepdims", 1)))


@onnx("ArgMax", "ArgMin")
def arg(c: Call, x: Any) -> Any:
    find = np.argmax if c.type == "ArgMax" else np.argmin
    axis, last = c.get("axis", 0), c.get("select_last_index", 0)
    n = x.shape[axis]
    found = find(np.flip(x, axis) if last else x, axis=axis)
    found = n - 1 - found if last else found
    return np.expand_dims(found, axis) if c.get("keepdims", 1) else found


@onnx("CumSum", "CumProd", static=(1,))
def running(c: Call, x: Any, axis: Any) -> Any:
    run, neutral = (np.cumsum, 0) if c.type == "CumSum" else (np.cumprod, 1)
    a = int(axis)
    x = np.flip(x, a) if c.get("reverse") else x
    y = np.astype(run(x, axis=a), x.dtype)
    if c.get("exclusive"):
        shape, cut = list(x.shape), [slice(None)] * x.ndim
        shape[a], cut[a] = 1, slice(0, -1)
        y = np.concatenate([np.full(shape, neutral, x.dtype), y[tuple(cut)]], axis=a)
    return np.flip(y, a) if c.get("reverse") else y


@onnx("MatMul")
def matmul(c: Call, a: Any, b: Any) -> Any:
    return a @ b


@onnx("Gemm")
def gemm(c: Call, a: Any, b: Any, plus: Any = None) -> Any:
    a, b = (a.T if c.get("transA") else a), (b.T if c.get("transB") else b)
    y = c.get("alpha", 1.0) * (a @ b)
    return y if plus is None else y + c.get("beta", 1.0) * plus


@onnx("Einsum")
def einsum(c: Call, *xs: Any) -> Any:
    return np.einsum(c["equation"].decode(), *xs)


@onnx("Det")
def det(c: Call, x: Any) -> Any:
    if x.shape[-2:] != (2, 2):
        raise NotOffered("no matrix decompositions")
    return x[..., 0, 0] * x[..., 1, 1] - x[..., 0, 1] * x[..., 1, 0]
