"""Ops that combine entries along dims, which vanish."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.op import Op, register, require
from graphc.ops.rules import check_dim, spread, wide
from graphc.types import TensorType

if TYPE_CHECKING:
    from graphc.op import Array, Functions, Gradients, Value


class Reduction(Op):
    """`y` combines x over `over`, which vanish."""

    over: tuple[int, ...]

    def infer(self, *types: TensorType) -> TensorType:
        (x,) = types
        for d in self.over:
            check_dim(self.name, d, x.rank)
        require(
            len(set(self.over)) == len(self.over), f"{self.name}: {self.over} repeats", code="G0206"
        )
        return TensorType(tuple(n for i, n in enumerate(x.shape) if i not in self.over), x.dtype)

    def dims(self, *types: TensorType) -> str:
        names = [f"a{i}" for i in range(types[0].rank)]
        kept = " ".join(x for i, x in enumerate(names) if i not in self.over)
        return f"{' '.join(names) or '.'} -> {kept or '.'}"


@register
class ReduceSum(Reduction):
    """`y` is the sum of x over `over`"""

    over: tuple[int, ...]
    linear = ((0,),)

    def grad(self, f: Functions, g: Value, y: Value, *xs: Value) -> Gradients:
        return (spread(f, g, xs[0], self.over),)

    def run(self, *xs: Array) -> Array:
        x = wide(xs[0])
        return np.asarray(np.sum(x, axis=self.over, dtype=x.dtype)).astype(xs[0].dtype)

    @classmethod
    def samples(cls) -> Sequence[tuple[Op, str]]:
        return [
            (cls((0,)), "f32[3,4]"),
            (cls((0, 1)), "f32[3,4]"),
            (cls((1,)), "f32[2,0]"),
            (cls(()), "f32[]"),
        ]


@register
class ReduceMax(Reduction):
    """`y` is the largest entry of x over `over`; ties share the gradient equally"""

    over: tuple[int, ...]
    reduces = "max"

    def grad(self, f: Functions, g: Value, y: Value, *xs: Value) -> Gradients:
        return (_share(f, g, y, xs[0], self.over),)

    def run(self, *xs: Array) -> Array:
        return np.asarray(np.max(xs[0], axis=self.over, initial=lowest(xs[0].dtype)))

    @classmethod
    def samples(cls) -> Sequence[tuple[Op, str]]:
        return [(cls((0,)), "f32[3,4]"), (cls((1,)), "f32[2,3,2]"), (cls((0,)), "bool[4]")]


@register
class ReduceMin(Reduction):
    """`y` is the smallest entry of x over `over`; ties share the gradient equally"""

    over: tuple[int, ...]
    reduces = "min"

    def grad(self, f: Functions, g: Value, y: Value, *xs: Value) -> Gradients:
        return (_share(f, g, y, xs[0], self.over),)

    def run(self, *xs: Array) -> Array:
        return np.asarray(np.min(xs[0], axis=self.over, initial=highest(xs[0].dtype)))

    @classmethod
    def samples(cls) -> Sequence[tuple[Op, str]]:
        return [(cls((0,)), "f32[3,4]"), (cls((1,)), "f32[2,3,2]"), (cls((0,)), "bool[4]")]


def _share(f: Functions, g: Value, y: Value, x: Value, over: tuple[int, ...]) -> Value:
    hit = f.cast(f.eq(x, spread(f, y, x, over)), dtype=x.type.dtype)
    return hit * spread(f, g / f.reduce_sum(hit, over=over), x, over)


def lowest(dtype: np.dtype[Any]) -> float | int | bool:
    """The identity of max."""
    if dtype.kind == "b":
        return False
    return int(np.iinfo(dtype).min) if dtype.kind in "iu" else float("-inf")


def highest(dtype: np.dtype[Any]) -> float | int | bool:
    """The identity of min."""
    if dtype.kind == "b":
        return True
    return int(np.iinfo(dtype).max) if dtype.kind in "iu" else float("inf")
