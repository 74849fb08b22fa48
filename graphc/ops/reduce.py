"""Reductions: ops that combine entries along dims, which disappear."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.ir.op import Op, register, require
from graphc.ir.types import TensorType
from graphc.ops.blocks import at, blocks_of, dense, padded, tree_sum
from graphc.ops.rules import check_dim, spread, wide

if TYPE_CHECKING:
    from graphc.ir.op import Array, Functions, Gradients, ValueLike


class Reduction(Op):
    """`y` combines the entries of x along the dims `over`, which disappear."""

    over: tuple[int, ...]

    def infer(self, *types: TensorType) -> TensorType:
        (x,) = types
        for d in self.over:
            check_dim(self.name, d, x.rank)
        require(
            len(set(self.over)) == len(self.over), f"{self.name}: {self.over} repeats", code="G0206"
        )
        cut = [d for d, n in self.attributes.get("blocks", ()) if 0 <= d < x.rank and n >= 1]
        text = f"{self.name}: blocks of {x.shape}"
        require(len(set(cut)) == len(self.attributes.get("blocks", ())), text, code="G0206")
        return TensorType(tuple(n for i, n in enumerate(x.shape) if i not in self.over), x.dtype)

    def dims(self, *types: TensorType) -> str:
        names = [f"a{i}" for i in range(types[0].rank)]
        kept = " ".join(x for i, x in enumerate(names) if i not in self.over)
        return f"{' '.join(names) or '.'} -> {kept or '.'}"


@register
class ReduceSum(Reduction):
    """`y` is the sum of x over `over`

    blocks gives dims along which it is computed in blocks of that length.
    """

    over: tuple[int, ...]
    blocks: tuple[tuple[int, int], ...] = ()
    linear = ((0,),)
    regroups = True

    def grad(self, f: Functions, g: ValueLike, y: ValueLike, *xs: ValueLike) -> Gradients:
        return (spread(f, g, xs[0], self.over),)

    def in_blocks(self, blocks: Mapping[str, int]) -> tuple[Op, ...]:
        """First the sum over all dims without blocks, then one dim of blocks after the other."""
        lengths = {int(x[1:]): n for x, n in blocks.items()}
        last = sorted((d for d in self.over if d in lengths), reverse=True)
        first = tuple(d for d in self.over if d not in lengths)
        steps: list[Op] = []
        gone: list[int] = []
        for over in filter(None, (first, *((d,) for d in last))):
            now = {d: d - sum(g < d for g in gone) for d in (*over, *lengths) if d not in gone}
            fixed = tuple((now[d], lengths[d]) for d in sorted(lengths) if d in now)
            steps.append(ReduceSum(tuple(now[d] for d in over), fixed))
            gone += over
        return tuple(steps) or (self,)

    @property
    def block_letters(self) -> tuple[str, ...]:
        return tuple(f"a{d}" for d, _ in self.blocks)

    def run(self, *xs: Array) -> Array:
        if self.blocks:
            return sum_blocks(xs[0], self.over, dict(self.blocks))
        return _sum(xs[0], self.over)

    @classmethod
    def samples(cls) -> Sequence[tuple[Op, str]]:
        return [
            (cls((0,)), "f32[3,4]"),
            (cls((0, 1)), "f32[3,4]"),
            (cls((1,)), "f32[2,0]"),
            (cls(()), "f32[]"),
        ]


def _sum(x: Array, over: tuple[int, ...]) -> Array:
    y = wide(x)
    return np.asarray(np.sum(y, axis=over, dtype=y.dtype)).astype(x.dtype)


def sum_blocks(x: Array, over: tuple[int, ...], blocks: Mapping[int, int]) -> Array:
    """The sum over some dims, block by block; each block's sum is rounded to the dtype of x."""
    names = [f"a{d}" for d in range(x.ndim)]
    sizes = {names[d]: n for d, n in blocks.items()}
    lengths = dict(zip(names, x.shape, strict=True))
    left = [name for d, name in enumerate(names) if d not in over]
    out = np.empty([lengths[name] for name in left], x.dtype)
    x = padded(x, names, sizes)
    for here in blocks_of([names[d] for d in blocks if d not in over], lengths, sizes):
        target = at(out, left, here)
        parts = (
            _sum(dense(at(x, names, here | there)), over)
            for there in blocks_of([names[d] for d in blocks if d in over], lengths, sizes)
        )
        np.copyto(target, tree_sum(parts)[tuple(map(slice, target.shape))])
    return out


class Extreme(Reduction):
    """The largest or the smallest entry; ties share the gradient equally."""

    @classmethod
    def samples(cls) -> Sequence[tuple[Op, str]]:
        shapes = ((0,), "f32[3,4]"), ((1,), "f32[2,3,2]"), ((0,), "bool[4]")
        return [(cls(over), types) for over, types in shapes]  # type: ignore[call-arg]


@register
class ReduceMax(Extreme):
    """`y` is the largest entry of x over `over`; ties share the gradient equally"""

    over: tuple[int, ...]
    reduces = "max"

    def grad(self, f: Functions, g: ValueLike, y: ValueLike, *xs: ValueLike) -> Gradients:
        return (_share(f, g, y, xs[0], self.over),)

    def run(self, *xs: Array) -> Array:
        return np.asarray(np.max(xs[0], axis=self.over, initial=lowest(xs[0].dtype)))


@register
class ReduceMin(Extreme):
    """`y` is the smallest entry of x over `over`; ties share the gradient equally"""

    over: tuple[int, ...]
    reduces = "min"

    def grad(self, f: Functions, g: ValueLike, y: ValueLike, *xs: ValueLike) -> Gradients:
        return (_share(f, g, y, xs[0], self.over),)

    def run(self, *xs: Array) -> Array:
        return np.asarray(np.min(xs[0], axis=self.over, initial=highest(xs[0].dtype)))


def _share(
    f: Functions, g: ValueLike, y: ValueLike, x: ValueLike, over: tuple[int, ...]
) -> ValueLike:
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
