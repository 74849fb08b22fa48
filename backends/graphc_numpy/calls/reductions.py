"""Sums, extremes and scatters, by the way through NumPy that suits their shape.

`ufunc.reduce` runs one inner loop per row: over the leading dims of a tensor with few columns, or
over a few trailing entries, it spends its time on starting loops. There a product with a vector of
ones, or a pass per entry over all rows, is many times faster.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphc.ops.indexing import checked

Array: TypeAlias = NDArray[Any]
Call: TypeAlias = Callable[[], Any]
ROW = 128  # entries of a row up to which a product sums rows faster than `reduce`
COLUMN = 1 << 18  # entries of a column up to which it is worth the memory of as many ones
FEW = 32  # entries of a row up to which a pass per entry is faster than `reduce`


@lru_cache(maxsize=64)
def _ones(n: int, dtype: np.dtype[Any]) -> Array:
    return np.ones(n, dtype)


def bind_sum(x: Array, over: tuple[int, ...], out: Array) -> list[Call]:
    """The calls that write the sum of x over some dims to out."""
    n, dims = prod(x.shape[d] for d in over), sorted(over)
    if x.dtype.kind == "f" and x.dtype.itemsize >= 4 and x.flags.c_contiguous and 0 < n < x.size:
        if dims == list(range(len(dims))) and n <= COLUMN:
            return [partial(np.matmul, _ones(n, x.dtype), x.reshape(n, -1), out.reshape(-1))]
        if dims == list(range(x.ndim - len(dims), x.ndim)) and n <= ROW:
            return [partial(np.matmul, x.reshape(-1, n), _ones(n, x.dtype), out.reshape(-1))]
    return [partial(np.add.reduce, x, over, out.dtype, out)]


def bind_extreme(
    ufunc: np.ufunc, x: Array, over: tuple[int, ...], first: float, out: Array
) -> list[Call]:
    """The calls that write the largest (smallest) entries of x over some dims to out."""
    n, dims = prod(x.shape[d] for d in over), sorted(over)
    trailing = dims == list(range(x.ndim - len(dims), x.ndim))
    if trailing and x.flags.c_contiguous and 2 <= n <= FEW and out.size > n:
        columns = x.reshape(*out.shape, n)
        calls: list[Call] = [partial(ufunc, columns[..., 0], columns[..., 1], out=out)]
        return calls + [partial(ufunc, out, columns[..., i], out=out) for i in range(2, n)]
    return [partial(ufunc.reduce, x, over, None, out, initial=first)]


def scatter_rows(ids: Array, updates: Array, out: Array) -> None:
    """out[ids[i]] += updates[i] over zeros, the rows of one index summed after a stable sort."""
    flat = checked(ids.reshape(-1), len(out), "scatter_add")
    out.fill(0)
    if out.ndim == 1:  # the one case that `add.at` is fast in
        np.add.at(out, flat, updates.reshape(-1))
    elif flat.size:
        order = np.argsort(flat, kind="stable")
        found = flat[order]
        starts = np.flatnonzero(np.diff(found, prepend=-1))
        rows = updates.reshape(flat.size, *out.shape[1:])
        out[found[starts]] = np.add.reduceat(rows[order], starts, axis=0)
