"""Contractions in fixed blocks, as one batched product over all blocks.

Each block's product is one call of BLAS on operands without gaps, whatever the tensors around it
look like, so that its bits follow from its shape and its values alone (graphc.ops.blocks).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphc.ops.contract import contract_blocks, grouped_letters, parse_spec
from graphc_numpy.memory import Scratch

Array: TypeAlias = NDArray[Any]
Call: TypeAlias = Callable[[], Any]


def bind_blocks(
    spec: str, blocks: Mapping[str, int], a: Array, b: Array, out: Array, scratch: Scratch
) -> list[Call]:
    """The calls that write einsum(spec, a, b), computed in blocks, to out."""
    left, right, result = parse_spec(spec)
    lengths = dict(zip(left + right, a.shape + b.shape, strict=True))
    uneven = any(lengths[x] % n for x, n in blocks.items())
    if uneven or out.dtype.itemsize == 2 or 0 in (*a.shape, *b.shape):
        return [partial(contract_blocks, spec, blocks, a, b, out)]
    batch, inner, rows, cols = grouped_letters(spec)
    summed = [x for x in blocks if x not in result]
    kept = [x for x in blocks if x in result and x not in batch]
    outer = [*summed, *kept]
    sizes = {x: n for x, n in blocks.items() if x in outer}
    x = _Operand.of(a, left, sizes, outer, (batch, rows, inner), scratch, 0)
    y = _Operand.of(b, right, sizes, outer, (batch, inner, cols), scratch, 1)
    z = split(out, result, sizes).transpose(_order(result, sizes, kept, (batch, rows, cols)))
    many = prod(lengths[s] // sizes[s] for s in summed)
    parts = [lengths[s] // sizes[s] for s in outer]
    whole = (*parts, *x.shape[len(outer) : -1], y.shape[-1])
    scratch.reserve(2, whole, out.dtype)
    return [partial(_product, x, y, z, many, whole, scratch)]


def _product(
    x: _Operand, y: _Operand, z: Array, many: int, whole: tuple[int, ...], scratch: Scratch
) -> None:
    """All blocks' products, the tree of those that are summed, and the result in its own order."""
    products = scratch.take(2, whole, z.dtype)
    np.matmul(x.read(), y.read(), out=products)
    terms = products.reshape(many, -1)
    while many > 1:
        half = many // 2
        np.add(terms[: 2 * half : 2], terms[1 : 2 * half : 2], out=terms[:half])
        if many % 2:
            terms[half] = terms[many - 1]
        many -= half
    np.copyto(z, terms[0].reshape(z.shape))


def split(x: Array, dims: str, sizes: Mapping[str, int]) -> Array:
    """x with every dim in blocks as two: which block, and where in it. A view."""
    shape: list[int] = []
    for letter, n in zip(dims, x.shape, strict=True):
        shape += [n // sizes[letter], sizes[letter]] if letter in sizes else [n]
    return x.reshape(shape)


def _order(
    dims: str, sizes: Mapping[str, int], outer: Sequence[str], groups: Sequence[Sequence[str]]
) -> list[int]:
    """The dims of `split`: the blocks in the order of `outer`, then group by group."""
    at: dict[tuple[str, bool], int] = {}
    for letter in dims:
        for is_block in (True, False) if letter in sizes else (False,):
            at[letter, is_block] = len(at)
    blocks = [at[x, True] for x in outer if x in dims]
    return blocks + [at[x, False] for group in groups for x in group]


@dataclass
class _Operand:
    """An operand as [blocks..., batch..., rows, columns], its last two dims without gaps."""

    moved: Array
    shape: tuple[int, ...]
    view: Array | None
    take: Callable[[], Array]

    @classmethod
    def of(
        cls, x: Array, dims: str, sizes: Mapping[str, int], outer: Sequence[str],
        groups: tuple[Sequence[str], Sequence[str], Sequence[str]], scratch: Scratch, slot: int,
    ) -> _Operand:  # fmt: skip
        moved = split(x, dims, sizes).transpose(_order(dims, sizes, outer, groups))
        blocks = sum(letter in dims for letter in outer)
        lengths = iter(moved.shape[:blocks])
        head = [next(lengths) if letter in dims else 1 for letter in outer]
        batch, first, _ = groups
        rest = moved.shape[blocks:]
        middle = len(batch) + len(first)
        tail = (*rest[: len(batch)], prod(rest[len(batch) : middle]), prod(rest[middle:]))
        shape = (*head, *tail)
        view = moved.reshape(shape)
        scratch.reserve(slot, moved.shape, moved.dtype)
        take = partial(scratch.take, slot, moved.shape, moved.dtype)
        dense = np.shares_memory(view, x) and _without_gaps(view)
        return cls(moved, shape, view if dense else None, take)

    def read(self) -> Array:
        if self.view is not None:
            return self.view
        copy = self.take()
        np.copyto(copy, self.moved)
        return copy.reshape(self.shape)


def _without_gaps(x: Array) -> bool:
    """Whether the last two dims have the strides that a new array would have."""
    return x.strides[-2:] == (x.shape[-1] * x.itemsize, x.itemsize)
