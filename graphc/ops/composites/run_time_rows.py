"""Functions that move entries along a dim of run-time length, such as the batch.

The ops that reverse, rotate or look up entries along a dim need all of it, but of a short batch
only the first n entries are there. So the entries are first written into a tensor of the full,
static length (the others are 0), and then looked up by indices that are computed from n.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from graphc.ir.builder import Builder, Value
from graphc.ir.types import BOOL, I32
from graphc.ops.shape import Reverse

Index: TypeAlias = Callable[[Value, Value], Value]  # (i of each entry, n) -> where it comes from


def rearranged(f: Builder, x: Value, dim: int, index: Index) -> Value:
    """`y[i] = x[index(i, n)]` along a dim of run-time length n; 0 <= index < n for i < n."""
    rows, n = _rows(f, x, dim)
    last = f.dim_size(size=max(x.shape[dim] - 1, 0), dtype=I32)
    ids = f.minimum(f.maximum(index(rows, n), 0), last)  # beyond n, any row will do
    return _cast_back(f, f.gather(_static(f, x, rows, dim), ids, dim=dim), x)


def reversed_along(f: Builder, x: Value, dim: int) -> Value:
    """x with its entries along `dim` in reverse order."""
    if x.type.extent(dim) is None:
        return f.add(Reverse(dim), (x,))
    return rearranged(f, x, dim, lambda i, n: n - 1 - i)


def entry(f: Builder, x: Value, dim: int, index: Callable[[Value], Value]) -> Value:
    """`x[index(n)]` along a dim of run-time length n, which the result does not have; 0 <= index
    < n."""
    rows, n = _rows(f, x, dim)
    return _cast_back(f, f.gather(_static(f, x, rows, dim), index(n), dim=dim), x)


def over_static(f: Builder, x: Value, dim: int, function: Callable[[Value], Value]) -> Value:
    """`function` along a dim, with zeros in the place of the entries that a short batch lacks.

    function: entry i of its result depends on the entries up to i only.
    """
    if x.type.extent(dim) is None:
        return function(x)
    rows, _ = _rows(f, x, dim)
    return f.gather(function(_static(f, x, rows, dim)), rows, dim=dim)


def _rows(f: Builder, x: Value, dim: int) -> tuple[Value, Value]:
    size, extent = x.shape[dim], x.type.extent(dim)
    assert extent is not None
    rows = f.iota(shape=(size,), dim=0, extents=(extent,))
    return rows, f.dim_size(size=size, extent=extent, dtype=I32)


def _static(f: Builder, x: Value, rows: Value, dim: int) -> Value:
    """x with a dim of static length, 0 where a short batch has no entries."""
    y = f.to_dtype(x, I32) if x.dtype == BOOL else x
    return f.scatter_add(rows, y, dim=dim, size=x.shape[dim])


def _cast_back(f: Builder, y: Value, x: Value) -> Value:
    return f.ne(y, 0) if x.dtype == BOOL else y
