"""Ops as another package may bring them, of each kind, that no backend has heard of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from lowering.structures import Structure, of, squares

from graphc import nn
from graphc.frontend.numpy.functions import function
from graphc.ir.op import _OPS, Op, register
from graphc.ir.types import TensorType
from graphc.ops.elementwise import Elementwise
from graphc.ops.reduce import Reduction
from graphc.ops.rules import marked, spread

if TYPE_CHECKING:
    from graphc.ir.op import Array, Functions, Gradients, ValueLike
    from graphc.lowering.program.strides import MemoryLayout


@register
class Softsign(Elementwise):
    """`y = x / (1 + |x|)`: elementwise, with a kernel of its own"""

    kinds = "f"

    def grad(self, f: Functions, g: ValueLike, y: ValueLike, *xs: ValueLike) -> Gradients:
        below = f.abs(xs[0]) + 1.0
        return (g / (below * below),)

    def run(self, *xs: Array) -> Array:
        return np.asarray(xs[0] / (1 + np.abs(xs[0])))


@register
class Fill(Elementwise):
    """`y` is x, but `least` at least: with an attribute, and the name of what nests call a fill"""

    least: float = 0.25
    kinds = "f"

    def grad(self, f: Functions, g: ValueLike, y: ValueLike, *xs: ValueLike) -> Gradients:
        return (f.select(f.ge(xs[0], f.full_like(xs[0], self.least)), g, f.zeros_like(g)),)

    def run(self, *xs: Array) -> Array:
        return np.asarray(np.maximum(xs[0], self.least))


@register
class Distance(Elementwise):
    """`y = sqrt(a² + b²)`: elementwise, by a function of NumPy"""

    kinds = "f"
    arity = 2
    ufunc = np.hypot

    def grad(self, f: Functions, g: ValueLike, y: ValueLike, *xs: ValueLike) -> Gradients:
        return g * xs[0] / y, g * xs[1] / y


@register
class ReduceCubes(Reduction):
    """`y` is the sum of |x|³ over `over`: a reduction that is no plain sum"""

    over: tuple[int, ...]

    def grad(self, f: Functions, g: ValueLike, y: ValueLike, *xs: ValueLike) -> Gradients:
        return (spread(f, g, xs[0], self.over) * xs[0] * f.abs(xs[0]) * 3.0,)

    def run(self, *xs: Array) -> Array:
        return np.asarray(np.sum(np.abs(xs[0]) ** 3, axis=self.over))

    @classmethod
    def samples(cls) -> Sequence[tuple[Op, str]]:
        return [(cls((0,)), "f32[3,4]")]


@register
class Rolled(Op):
    """`y` is x, turned by `by` along dim 1: with a kernel only"""

    by: int = 1
    linear = ((0,),)

    def infer(self, *types: TensorType) -> TensorType:
        return TensorType(types[0].shape, types[0].dtype)

    def dims(self, *types: TensorType) -> str:
        return f"{marked(types[0].rank, [1])} -> {marked(types[0].rank, [1])}"

    def grad(self, f: Functions, g: ValueLike, y: ValueLike, *xs: ValueLike) -> Gradients:
        return (f.rolled(g, by=-self.by),)

    def run(self, *xs: Array) -> Array:
        return np.roll(xs[0], self.by, axis=1)

    @classmethod
    def samples(cls) -> Sequence[tuple[Op, str]]:
        return [(cls(), "f32[3,4]")]


@register
class Flipped(Op):
    """`y` is x's transpose: a view, but only where x has no gaps"""

    view = True
    linear = ((0,),)

    def infer(self, *types: TensorType) -> TensorType:
        return TensorType(types[0].shape[::-1], types[0].dtype)

    def dims(self, *types: TensorType) -> str:
        return "a0 a1 -> a1 a0"

    def grad(self, f: Functions, g: ValueLike, y: ValueLike, *xs: ValueLike) -> Gradients:
        return (f.flipped(g),)

    def layout(self, x: MemoryLayout) -> MemoryLayout | None:
        return x.transposed((1, 0)) if x.is_dense else None

    def run(self, *xs: Array) -> Array:
        return xs[0].T.copy()

    @classmethod
    def samples(cls) -> Sequence[tuple[Op, str]]:
        return [(cls(), "f32[3,4]")]


# Tests that go through all ops shall not meet these: who needs them puts them back.
OPS = {
    op.name: _OPS.pop(op.name) for op in (Softsign, Fill, Distance, ReduceCubes, Rolled, Flipped)
}


@contextmanager
def known() -> Iterator[None]:
    """Within it, the ops are known by their names."""
    _OPS.update(OPS)
    try:
        yield
    finally:
        for name in OPS:
            del _OPS[name]
        function.cache_clear()


# -- steps with each of them ----------------------------------------------------------------------

Function = Callable[[Any], Any]


def structure(traced: Function, formula: Function) -> Structure:
    def loss(f: Function) -> Callable[[Any, Any], Any]:
        return lambda p, b: squares(f(np.tanh(b["x"] * p["w"])))

    return Structure(loss(traced), {"w": of(5)}, {"x": of(6, 5)}, formula=loss(formula))


STRUCTURES: dict[str, Structure] = {
    "softsign": structure(lambda x: nn.softsign(x), lambda x: x / (1 + np.abs(x))),
    "fill": structure(lambda x: nn.fill(x, least=0.5), lambda x: np.maximum(x, 0.5)),
    "distance": structure(lambda x: nn.distance(x, x + 1), lambda x: np.hypot(x, x + 1)),
    "reduce_cubes": structure(
        lambda x: nn.reduce_cubes(x, over=(1,)), lambda x: np.sum(np.abs(x) ** 3, axis=1)
    ),
    "rolled": structure(lambda x: nn.rolled(x), lambda x: np.roll(x, 1, axis=1)),
    "flipped": structure(
        lambda x: nn.flipped(nn.flipped(x[:, 1:4])[1:]) * 2.0, lambda x: x[:, 1:4][:, 1:] * 2.0
    ),
}
