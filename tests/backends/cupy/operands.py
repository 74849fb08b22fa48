"""Random operands for any nest: as large as its accesses reach, with indices and chains that fit."""

from __future__ import annotations

from typing import Any

import numpy as np
from graphc_cupy.ptx.apart import row_limits

from graphc.ir.types import BOOL, DType
from graphc.lowering.kernel.code import (
    Access,
    IndexLinks,
    LinkedSum,
    Load,
    Nest,
    Store,
    reached,
    statements,
)

Array = np.ndarray[Any, np.dtype[Any]]
INTEGERS = 4  # integers of operands are less, so that what is computed of them is small


def operands_of(kernel: Nest | IndexLinks, seed: int = 0) -> list[Array]:
    """An array for each parameter."""
    rng = np.random.default_rng(seed)
    if isinstance(kernel, IndexLinks):
        below = min(kernel.limit, 2 * kernel.count)
        ids = rng.integers(0, max(below, 1), kernel.count).astype(kernel.params[0].dtype.numpy)
        return [ids, np.zeros(kernel.count, np.int32)]
    sizes, chains, made = _sizes(kernel), _chains(kernel), list[Array]()
    counts = {sizes[k] for k in chains}
    ids = {n: rng.integers(0, max(min(n // 3, _rows(kernel)), 1), n) for n in counts}
    if _writes_rows(kernel) and not chains and not kernel.serial:  # no two entries to one row
        ids = {n: rng.permutation(_rows(kernel))[:n] for n in set(sizes) if n <= _rows(kernel)}
    for k, (param, size) in enumerate(zip(kernel.params, sizes, strict=True)):
        if k in chains:
            made.append(links(ids[size]))
        elif size in ids and param.dtype.kind in "iu":
            made.append(ids[size].astype(param.dtype.numpy))
        else:
            made.append(numbers(rng, param.dtype, size))
    return made


def _writes_rows(nest: Nest) -> bool:
    return any(isinstance(x, Store) and x.access.row is not None for x in statements(nest))


def _rows(nest: Nest) -> int:
    """The rows that any index may name."""
    return min(row_limits(nest).values(), default=INTEGERS)


def numbers(rng: Any, dtype: DType, size: int) -> Array:
    if dtype.kind == "f":
        return np.asarray(rng.normal(size=size)).astype(dtype.numpy)
    return np.asarray(rng.integers(0, 2 if dtype == BOOL else INTEGERS, size)).astype(dtype.numpy)


def links(ids: Array) -> Array:
    """The links of indices, as IndexLinks makes them."""
    made, last = np.full(len(ids), len(ids), np.int32), dict[int, int]()
    for k, i in enumerate(ids.tolist()):
        if i in last:
            before = last[i]
            made[before] = k if made[before] >= 0 else ~k
            made[k] = ~len(ids)
        last[i] = k
    return made


def _chains(nest: Nest) -> set[int]:
    """The parameters that hold links."""
    sums = [x for x in statements(nest) if isinstance(x, LinkedSum)]
    loads = {x.target: x.access.slot for x in statements(nest) if isinstance(x, Load)}
    return {x.links for x in sums} | {loads[x.link] for x in sums if x.link in loads}


def _sizes(nest: Nest) -> list[int]:
    """How many elements are reached behind each parameter."""
    limits = row_limits(nest)
    sizes = [1] * len(nest.params)
    for x in statements(nest):
        for access in reached(x):
            more = 0
            if isinstance(x, LinkedSum):
                more = sum((n - 1) * stride for _, n, stride in x.offsets)
                sizes[x.links] = max(sizes[x.links], x.count)
            sizes[access.slot] = max(sizes[access.slot], _end(nest, access, limits) + more)
    return sizes


def _end(nest: Nest, access: Access, limits: dict[int, int]) -> int:
    axes = zip((*nest.rows, *nest.columns), access.strides, strict=True)
    end = access.offset + sum((n - 1) * stride for n, stride in axes if n and stride > 0) + 1
    if access.row is not None:
        end += (limits.get(access.row, 8 * INTEGERS) - 1) * access.step
    return end
