"""Fixed blocks: sums and products computed in parts of fixed shape, whichever device computes them.

A dim of n entries is divided into `tiles` blocks of ceil(n / tiles) entries, the last one padded
with zeros. Each block is computed by itself, from operands with a fixed layout, and sums over
blocks are a balanced binary tree. So a device that holds some of the blocks computes the same bits
for them as one device that holds all: otherwise, BLAS gives other bits for a narrower product, and
NumPy for a shorter sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.ir.leaf_tree import GrowingSum

if TYPE_CHECKING:
    from graphc.ir.op import Array

Where = Mapping[str, slice]


def block_length(n: int, tiles: int) -> int:
    """The length of a block of n entries, of which the last may have fewer; 0 if it, or others
    before it, would be empty."""
    length = -(-n // tiles)
    return length if n > (tiles - 1) * length else 0


def tree_sum(parts: Iterable[Array]) -> Array:
    """The sum by a balanced binary tree; every inner node is rounded to the dtype of the parts."""
    sums = GrowingSum[Any](np.add)
    for part in parts:
        sums.take(part)
    return np.asarray(sums.total())


def blocks_of(names: Sequence[str], lengths: Mapping[str, int], blocks: Mapping[str, int]) -> (
    Iterator[dict[str, slice]]
):  # fmt: skip
    """The position of every block of the dims `names`, by name; the first name is the major one."""
    ranges = [range(0, lengths[x], blocks[x]) for x in names]
    for starts in product(*ranges):
        yield {x: slice(i, i + blocks[x]) for x, i in zip(names, starts, strict=True)}


def padded(x: Array, names: Sequence[str], blocks: Mapping[str, int]) -> Array:
    """x with zeros after the entries of every dim that is not a whole number of blocks."""
    behind = [-n % blocks.get(name, 1) for name, n in zip(names, x.shape, strict=True)]
    if not any(behind):
        return x
    y = np.zeros([n + k for n, k in zip(x.shape, behind, strict=True)], x.dtype)
    y[tuple(map(slice, x.shape))] = x
    return y


def at(x: Array, names: Sequence[str], where: Where) -> Array:
    """The part of x in a block, as a view, even if x has no dims."""
    index: Any = (*(where.get(name, slice(None)) for name in names), ...)
    return x[index]  # type: ignore[no-any-return]


def dense(x: Array) -> Array:
    """x in row-major order without gaps, with the strides of a new array."""
    return np.ascontiguousarray(x).reshape(-1).reshape(x.shape)
