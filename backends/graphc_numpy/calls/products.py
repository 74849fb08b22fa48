"""Contractions as one (batched) matrix product into the result's own memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphc.ops.contract import contract, parse_spec
from graphc_numpy.memory import Scratch

Array: TypeAlias = NDArray[Any]
Call: TypeAlias = Callable[[], Any]


def bind_product(spec: str, a: Array, b: Array, out: Array, scratch: Scratch) -> list[Call]:
    """The calls that write einsum(spec, a, b) to out.

    Where the operands' dims can be grouped without a copy, there is just one call of `np.matmul`.
    """
    if out.dtype.itemsize == 2 or 0 in (*a.shape, *b.shape):
        return [partial(contract, spec, a, b, out)]
    left, right, result = parse_spec(spec)
    batch = [x for x in left if x in right and x in result]
    inner = [x for x in left if x in right and x not in result]
    rows = [x for x in result if x not in right]
    cols = [x for x in result if x not in left]
    if result and result[-1] in rows:  # the product of the transposes has the result's order
        a, b, left, right, rows, cols = b, a, right, left, cols, rows
    x = _operand(a, left, (batch, rows, inner), scratch, 0)
    y = _operand(b, right, (batch, inner, cols), scratch, 1)
    z = _Grouped.of(out, result, (batch, rows, cols))
    if z.view is None or not z.view.flags.c_contiguous:
        z = z.in_scratch(scratch, 2)
    if x.view is not None and y.view is not None and z.view is not None:
        return [partial(np.matmul, x.view, y.view, z.view)]
    return [partial(_product, x, y, z)]


@dataclass
class _Grouped:
    """A tensor as [batch..., first group, second group]: as a view, or copied to scratch memory."""

    moved: Array  # the dims in order, not merged
    shape: tuple[int, ...]
    view: Array | None
    take: Callable[[], Array] | None = None

    @classmethod
    def of(cls, x: Array, dims: str, groups: tuple[list[str], list[str], list[str]]) -> _Grouped:
        batch, first, second = groups
        moved = x.transpose([dims.index(d) for d in (*batch, *first, *second)])
        shape = _merged(moved.shape, len(batch), len(first))
        view = moved.reshape(shape)
        return cls(moved, shape, view if np.shares_memory(view, x) else None)

    def in_scratch(self, scratch: Scratch, slot: int) -> _Grouped:
        scratch.reserve(slot, self.moved.shape, self.moved.dtype)
        take = partial(scratch.take, slot, self.moved.shape, self.moved.dtype)
        return _Grouped(self.moved, self.shape, None, take)

    def read(self) -> Array:
        if self.view is not None:
            return self.view
        target = self.target()
        np.copyto(target.reshape(self.moved.shape), self.moved)
        return target

    def target(self) -> Array:
        if self.view is not None:
            return self.view
        assert self.take is not None
        return self.take().reshape(self.shape)


def _operand(
    x: Array, dims: str, groups: tuple[list[str], list[str], list[str]], scratch: Scratch, slot: int
) -> _Grouped:
    made = _Grouped.of(x, dims, groups)
    if made.view is not None and _suits_blas(made.view):
        return made
    return made.in_scratch(scratch, slot)


def _product(x: _Grouped, y: _Grouped, z: _Grouped) -> None:
    target = z.target()
    np.matmul(x.read(), y.read(), out=target)
    if z.view is None:
        np.copyto(z.moved, target.reshape(z.moved.shape))


def _merged(shape: tuple[int, ...], batch: int, first: int) -> tuple[int, ...]:
    return (*shape[:batch], prod(shape[batch : batch + first]), prod(shape[batch + first :]))


def _suits_blas(x: Array) -> bool:
    """Whether matmul hands the last two dims to BLAS as they lie."""
    m, n = x.strides[-2:]
    rows, cols = x.shape[-2:]
    size = x.itemsize
    by_row = (n == size or cols == 1) and (m >= cols * size or rows == 1)
    by_col = (m == size or rows == 1) and (n >= rows * size or cols == 1)
    return (by_row or by_col) and m % size == n % size == 0
