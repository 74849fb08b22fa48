"""Compares gradients of first and second order with central differences, in f64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from graphc.autodiff.reverse_mode import gradients
from graphc.ir.builder import Builder, Value
from graphc.ir.graph import Graph
from graphc.ir.types import F64
from graphc.ops.source import Data
from graphc.support.dataclass import dataclass
from graphc.testing.compute import Function, evaluate, inputs

if TYPE_CHECKING:
    from graphc.ir.op import Array

STEP = 1e-5


@dataclass(frozen=True)
class Derivatives:
    """A graph of a random projection of a function, of its gradient, and of a projection of that.

    value:  the node `sum(f(xs) * u)`, u random
    first:  the nodes of its gradient, one per float operand
    slope:  the node `sum(first * v)`, v random; "" if there is none
    second: the nodes of the gradient of `slope`
    """

    graph: Graph
    value: str
    first: tuple[str, ...]
    slope: str
    second: tuple[str, ...]


def derivatives(function: Function, xs: Sequence[Array], seed: int = 0) -> Derivatives:
    """Build the graph of `function(f, *values)` and of its derivatives by the floats among `xs`."""
    f = Builder("derivatives")
    rng = np.random.default_rng(seed)
    operands = inputs(f, xs)
    floats = [v for v in operands if v.dtype.kind == "f"]
    results = function(f, *operands)
    value = _projected(f, [results] if isinstance(results, Value) else results, rng)
    first = gradients(f, value, [v.name for v in floats])
    slopes = [g for v in floats if (g := first[v.name]) is not None]
    slope = _projected(f, slopes, rng) if slopes else None
    second = gradients(f, slope, [v.name for v in floats]) if slope else {}
    return Derivatives(
        f.build(),
        value.name,
        tuple(_name(first[v.name]) for v in floats),
        slope.name if slope else "",
        tuple(_name(second.get(v.name)) for v in floats),
    )


def _name(value: Value | None) -> str:
    return value.name if value is not None else ""


def _projected(f: Builder, values: Sequence[Value], rng: np.random.Generator) -> Value:
    """The sum of all entries, each multiplied by a random number, as a scalar."""
    total: Value | None = None
    for v in values:
        weights = f.const_array(data=Data.of(rng.uniform(0.5, 1.5, v.shape), F64))
        part = f.reduce_sum(v * weights, over=tuple(range(v.rank)))
        total = part if total is None else total + part
    assert total is not None
    return total


def check_gradients(
    function: Function, xs: Sequence[Array], order: int = 2, tolerance: float = 1e-6
) -> None:
    """Raise AssertionError if the gradients of `function` differ from central differences."""
    built = derivatives(function, xs)
    feeds = {f"x{i}": x for i, x in enumerate(xs)}
    values = evaluate(built.graph, feeds)
    slots = [i for i, x in enumerate(xs) if x.dtype.kind == "f"]
    targets = [(built.value, built.first), (built.slope, built.second)][:order]
    for target, names in targets:
        for slot, name in zip(slots, names, strict=True) if target else ():
            expected = _differences(built.graph, target, feeds, f"x{slot}")
            got = values[name] if name else np.zeros_like(xs[slot])
            np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


def _differences(graph: Graph, target: str, feeds: dict[str, Array], name: str) -> Array:
    """The slope of a scalar node along each entry of an input."""
    x = feeds[name]
    slopes = np.zeros(x.shape)
    for at in np.ndindex(*x.shape):
        ends = []
        for step in (STEP, -STEP):
            moved = x.copy()
            moved[at] += step
            ends.append(float(evaluate(graph, {**feeds, name: moved})[target]))
        slopes[at] = (ends[0] - ends[1]) / (2 * STEP)
    return slopes
