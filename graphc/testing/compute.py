"""Run a function of values on arrays, node by node with the ops' own kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphc.ir.builder import Builder, Value
from graphc.ir.types import Extent, TensorType, dtype_of
from graphc.ops.evaluate import evaluate
from graphc.ops.source import Input

if TYPE_CHECKING:
    from graphc.ir.op import Array

Function = Callable[..., Any]


def inputs(f: Builder, xs: Sequence[Array], batch: Sequence[int] = ()) -> list[Value]:
    """An input `x0`, `x1`, ... for each array; dim 0 of those in `batch` has the extent `batch`."""
    return [_input(f, f"x{i}", x, i in batch) for i, x in enumerate(xs)]


def _input(f: Builder, name: str, x: Array, batched: bool) -> Value:
    extents = (Extent("batch"), *[None] * (x.ndim - 1)) if batched else ()
    t = TensorType(x.shape, dtype_of(x.dtype), extents)
    return f.add(Input(name), type=t, name=name)


def compute(function: Function, *xs: Array, training: bool = True) -> Any:
    """`function(f, *values)` on arrays: an array, or a tuple of them."""
    f = Builder("compute", training=training)
    results = function(f, *inputs(f, xs))
    return fetch(f, results, {f"x{i}": x for i, x in enumerate(xs)})


def fetch(f: Builder, wanted: Any, feeds: Mapping[str, Array]) -> Any:
    """What the values in `wanted` (one, or a tuple) come to; variables start from their fill."""
    values = evaluate(f.build(), feeds)
    if isinstance(wanted, Value):
        return values[wanted.name]
    return tuple(values[v.name] for v in wanted)
