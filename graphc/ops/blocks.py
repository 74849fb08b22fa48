"""Fixed blocks: sums and products that are computed in parts of one shape, whoever computes them.

A dim of n entries is `tiles` blocks of ceil(n / tiles), the last one padded with zeros. Each block
is computed by itself, from operands that lie one way, and sums over blocks are a balanced binary
tree. So a device that holds some of the blocks computes what one device that holds all does, bit
by bit: BLAS gives a narrower product, and NumPy a shorter sum, other bits.
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
    """The length of a block of n entries, of which the last may have fewer; 0 where it, or others
    before it, would have none."""
    length = -(-n // tiles)
    return length if n > (tiles - 1) * length else 0


def tree_sum(parts: Iterable[Array]) -> Array:
    """The sum by a balanced binary tree, every inner node rounded to the parts' dtype."""
    sums = GrowingSum[Any](np.add)
    for part in parts:
        sums.take(part)
    return np.asarray(sums.total())


def blocks_of(names: Sequence[str], lengths: Mapping[str, int], blocks: Mapping[str, int]) -> (
    Iterator[dict[str, slice]]
):  # fmt: skip
    """Every block of the dims `names`, the first name's the major: where it lies, by name."""
    ranges = [range(0, lengths[x], blocks[x]) for x in names]
    for starts in product(*ranges):
        yield {x: slice(i, i + blocks[x]) for x, i in zip(names, starts, strict=True)}


def padded(x: Array, names: Sequence[str], blocks: Mapping[str, int]) -> Array:
    """x with zeros behind the entries of every dim that is no whole number of blocks."""
    behind = [-n % blocks.get(name, 1) for name, n in zip(names, x.shape, strict=True)]
    if not any(behind):
        return x
    y = np.zeros([n + k for n, k in zip(x.shape, behind, strict=True)], x.dtype)
    y[tuple(map(slice, x.shape))] = x
    return y


def at(x: Array, names: Sequence[str], where: Where) -> Array:
    """The part of x that lies in a block: a view, also where x has no dims."""
    index: Any = (*(where.get(name, slice(None)) for name in names), ...)
    return x[index]  # type: ignore[no-any-return]


def dense(x: Array) -> Array:
    """x in row-major order without gaps, with the strides that a new array would have."""
    return np.ascontiguousarray(x).reshape(-1).reshape(x.shape)
