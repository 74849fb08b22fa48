"""Reshape, and the dims rule that follows from the sizes of both shapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING

from graphc.ir.op import Op, register, require
from graphc.ir.types import TensorType

if TYPE_CHECKING:
    from graphc.ir.op import Array, Functions, Gradients, ValueLike
    from graphc.lowering.program.strides import MemoryLayout


@register
class Reshape(Op):
    """`y` has x's entries in row-major order, in another shape"""

    shape: tuple[int, ...]
    same_entries = True
    linear = ((0,),)
    view = True

    def infer(self, *types: TensorType) -> TensorType:
        (x,) = types
        size = prod(self.shape)
        help = f"{x.size} entries do not fill {size} places; a length of -1 takes what is left"
        require(size == x.size, f"can't reshape {x.shape} to {self.shape}", help=help)
        require(all(n >= 0 for n in self.shape), f"reshape: bad shape {self.shape}", code="G0206")
        return TensorType(self.shape, x.dtype)

    def dims(self, *types: TensorType) -> str:
        return reshape_rule(types[0].shape, self.shape)

    def grad(self, f: Functions, g: ValueLike, y: ValueLike, *xs: ValueLike) -> Gradients:
        return (f.reshape(g, shape=xs[0].shape),)

    def run(self, *xs: Array) -> Array:
        return xs[0].reshape(self.shape).copy()

    def layout(self, x: MemoryLayout) -> MemoryLayout | None:
        return x.reshaped(self.shape)

    def localize(self, shape: tuple[int, ...]) -> Op:
        return Reshape(shape)

    def merge(self, inner: Op) -> Op | None:
        return self if isinstance(inner, Reshape) else None

    @classmethod
    def samples(cls) -> Sequence[tuple[Op, str]]:
        pairs = [
            ((12,), "[3,4]"),
            ((4, 6), "[2,2,6]"),
            ((2, 2, 6), "[4,6]"),
            ((1, 1), "[]"),
            ((0, 3), "[3,0]"),
        ]
        return [(cls(shape), f"f32{x}") for shape, x in pairs]


def reshape_rule(old: tuple[int, ...], new: tuple[int, ...]) -> str:
    """`(x0_2 x1_3) x2_4 -> x0_2 (x1_3 x2_4)`: the common factors, each letter with its size.

    Blocks of dims whose sizes do not nest, dims of size 1 that are added or removed, and all dims
    of an empty tensor are whole.
    """
    left: list[list[str]] = [[] for _ in old]
    right: list[list[str]] = [[] for _ in new]
    blocks = _blocks(old, new) if 0 not in old else [(range(len(old)), range(len(new)))]
    count = 0
    for i, j in blocks:
        for k, m, size in _nested(old, new, i, j):
            left[k].insert(0, f"x{count}_{size}")
            right[m].insert(0, f"x{count}_{size}")
            count += 1
    a = [dim or [f"l{k}_{n}!"] for k, (dim, n) in enumerate(zip(left, old, strict=True))]
    b = [dim or [f"r{k}_{n}!"] for k, (dim, n) in enumerate(zip(right, new, strict=True))]
    return f"{_groups(a)} -> {_groups(b)}"


def _blocks(old: tuple[int, ...], new: tuple[int, ...]) -> Iterator[tuple[range, range]]:
    """The shortest runs of dims with equal products; a lone 1 has no counterpart."""
    i = j = 0
    while i < len(old) or j < len(new):
        one = i < len(old) and old[i] == 1, j < len(new) and new[j] == 1
        if one[0] != one[1]:
            i2, j2 = i + one[0], j + one[1]
        else:
            i2, j2 = _block(old, new, i, j)
        yield range(i, i2), range(j, j2)
        i, j = i2, j2


def _block(old: tuple[int, ...], new: tuple[int, ...], i: int, j: int) -> tuple[int, int]:
    a, b = old[i], new[j]
    while a != b:
        if a < b:
            i += 1
            a *= old[i]
        else:
            j += 1
            b *= new[j]
    return i + 1, j + 1


def _nested(
    old: tuple[int, ...], new: tuple[int, ...], i: range, j: range
) -> list[tuple[int, int, int]]:
    """(dim of old, dim of new, size) of the factors of a block, minor first; [] if none nest."""
    a, b = [(k, old[k]) for k in i], [(k, new[k]) for k in j]
    factors: list[tuple[int, int, int]] = []
    while a and b:
        (k, m), (l, n) = a.pop(), b.pop()
        size = min(m, n)
        if size == 0 or max(m, n) % size:
            return []
        factors.append((k, l, size))
        if m > size:
            a.append((k, m // size))
        elif n > size:
            b.append((l, n // size))
    return factors


def _groups(dims: list[list[str]]) -> str:
    return " ".join(d[0] if len(d) == 1 else f"({' '.join(d)})" for d in dims) or "."
