"""Sliding windows, from which convolution and pooling are built, and their adjoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from graphc.ir.op import Op, register, require
from graphc.ir.types import TensorType
from graphc.ops.rules import check_dim, marked, wide

if TYPE_CHECKING:
    from graphc.ir.op import Array, Functions, Gradients, ValueLike


@register
class Windows(Op):
    """`y[..., i, ..., k] = x[..., i*stride + k*dilation, ...]`: sliding windows along `at`

    x [.., n_d, ..] -> y [.., m_d, .., sizes...] with m = (n - (size-1)*dilation - 1) // stride + 1.
    Convolution and pooling are a product or a reduction over the new dims.
    """

    at: tuple[int, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    same_entries = True
    linear = ((0,),)

    def infer(self, *types: TensorType) -> TensorType:
        (x,) = types
        same = len(self.at) == len(self.sizes) == len(self.strides) == len(self.dilations)
        require(same, "windows: dims, sizes, strides and dilations differ in number", code="G0206")
        require(len(set(self.at)) == len(self.at), f"windows: {self.at} repeats", code="G0206")
        shape = list(x.shape)
        for d, k, s, r in zip(self.at, self.sizes, self.strides, self.dilations, strict=True):
            check_dim("windows", d, x.rank)
            require(min(k, s, r) >= 1, "windows: sizes, strides, dilations are >= 1", code="G0206")
            shape[d] = (x.shape[d] - (k - 1) * r - 1) // s + 1
            require(shape[d] >= 1, f"a window of {k} (dilation {r}) does not fit into {x.shape[d]}")
        return TensorType((*shape, *self.sizes), x.dtype)

    def dims(self, *types: TensorType) -> str:
        rank = types[0].rank
        new = [f"m{i}!" for i in self.at]
        sizes = " ".join(f"k{i}!" for i in self.at)
        return f"{marked(rank, self.at)} -> {marked(rank, self.at, new)} {sizes}"

    def grad(self, f: Functions, g: ValueLike, y: ValueLike, *xs: ValueLike) -> Gradients:
        lengths = tuple(xs[0].shape[d] for d in self.at)
        options = {"at": self.at, "strides": self.strides, "dilations": self.dilations}
        return (f.fold_windows(g, lengths=lengths, **options),)

    def run(self, *xs: Array) -> Array:
        return np.array(window_view(xs[0], self.at, self.sizes, self.strides, self.dilations))

    @classmethod
    def samples(cls) -> Sequence[tuple[Op, str]]:
        return [
            (cls((1, 2), (2, 2), (1, 1), (1, 1)), "f32[2,4,3,2]"),
            (cls((1,), (3,), (2,), (2,)), "f32[2,9,3]"),
        ]


def window_view(
    x: Array,
    dims: Sequence[int],
    sizes: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> Array:
    """The sliding windows of x as a strided view (no copy)."""
    reach = [(k - 1) * r + 1 for k, r in zip(sizes, dilations, strict=True)]
    view = np.lib.stride_tricks.sliding_window_view(x, reach, axis=tuple(dims))
    where: list[slice] = [slice(None)] * view.ndim
    for i, (d, s, r) in enumerate(zip(dims, strides, dilations, strict=True)):
        where[d] = slice(None, None, s)
        where[x.ndim + i] = slice(None, None, r)
    return view[tuple(where)]


@register
class FoldWindows(Op):
    """`y` adds every window's entries back to where they came from: the adjoint of windows

    x [.., m_d, .., sizes...] -> y [.., lengths_d, ..]
    """

    at: tuple[int, ...]
    lengths: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    linear = ((0,),)

    def infer(self, *types: TensorType) -> TensorType:
        (x,) = types
        numbers = {len(self.at), len(self.lengths), len(self.strides), len(self.dilations)}
        good = len(numbers) == 1 and len(set(self.at)) == len(self.at) <= x.rank
        require(good, "fold_windows: dims, lengths, strides and dilations", code="G0206")
        rank = x.rank - len(self.at)
        shape, windows = list(x.shape[:rank]), zip(self.at, x.shape[rank:], strict=True)
        for i, (d, k) in enumerate(windows):
            check_dim("fold_windows", d, rank)
            s, r, n = self.strides[i], self.dilations[i], self.lengths[i]
            reach = (x.shape[d] - 1) * s + (k - 1) * r + 1 if x.shape[d] and k else 0
            text = f"windows {x.shape} (strides {self.strides}) do not lie in {self.lengths}"
            require(min(s, r) >= 1 and 0 <= reach <= n, f"fold_windows: {text}")
            shape[d] = n
        return TensorType(tuple(shape), x.dtype)

    def dims(self, *types: TensorType) -> str:
        rank = types[0].rank - len(self.at)
        sizes = " ".join(f"k{i}!" for i in self.at)
        new = [f"m{i}!" for i in self.at]
        return f"{marked(rank, self.at, new)} {sizes} -> {marked(rank, self.at)}"

    def grad(self, f: Functions, g: ValueLike, y: ValueLike, *xs: ValueLike) -> Gradients:
        sizes = xs[0].shape[len(xs[0].shape) - len(self.at) :]
        options = {"at": self.at, "strides": self.strides, "dilations": self.dilations}
        return (f.windows(g, sizes=sizes, **options),)

    def run(self, *xs: Array) -> Array:
        (x,) = xs
        rank = x.ndim - len(self.at)
        shape = list(x.shape[:rank])
        for d, n in zip(self.at, self.lengths, strict=True):
            shape[d] = n
        y = wide(np.zeros(shape, x.dtype))
        for k in np.ndindex(*x.shape[rank:]):
            where = [slice(None)] * rank
            for d, at, s, r in zip(self.at, k, self.strides, self.dilations, strict=True):
                where[d] = slice(at * r, at * r + (x.shape[d] - 1) * s + 1, s)
            y[tuple(where)] += x[(..., *k)].astype(y.dtype)
        return y.astype(x.dtype)

    @classmethod
    def samples(cls) -> Sequence[tuple[Op, str]]:
        return [(cls((1, 2), (4, 3), (1, 1), (1, 1)), "f32[2,3,2,2,2,2]")]
