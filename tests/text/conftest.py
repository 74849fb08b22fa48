"""Graphs for the tests of the text: one small step, and random ones."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from graphc.ir.builder import Builder, Value
from graphc.ir.graph import Graph, Variable
from graphc.ir.op import op_named
from graphc.ir.placement import Axis, Mesh
from graphc.ir.types import F32, Extent, TensorType
from graphc.ops.source import Input
from graphc.support.errors import Span

BATCH = Extent("batch")


def make_small_step() -> Graph:
    f = Builder("digits", Mesh((Axis("data", 4), Axis("turn", 2, "time"))))
    w = f.declare(Variable("w", TensorType((4, 2), F32), origin=Span("d.gc", 2, 5, 1)))
    x = f.add(Input("x"), name="x", type=TensorType((8, 4), F32, (BATCH, None)))
    with f.at(Span("d.gc", 3, 7, 5)), f.scope("layer/0"):
        h = f.tanh(f.einsum(x, w, spec="bk,kn->bn"))
    f.outputs["loss"] = f.reduce_sum(h, over=(0, 1)).name
    return f.build()


UNARY = ("tanh", "neg", "exp", "abs", "sign")
BINARY = ("add", "sub", "mul", "maximum")


def make_random_graph(seed: int) -> Graph:
    """A legal graph of up to thirty nodes: elementwise ops, products, sums, odd names, origins."""
    draw = random.Random(seed)
    f = Builder(f"r{seed}", Mesh((Axis("data", 2), Axis("turn", 3, "time"))[: draw.randrange(3)]))
    t = TensorType((4, 3), F32, (BATCH, None))
    values = [f.add(Input(f"in {i}"), type=t, name=f"x{i}") for i in range(draw.randint(1, 3))]
    if draw.random() < 0.5:
        values.append(f.broadcast_to(f.declare(Variable("w", TensorType((4, 3), F32))), (4, 3)))
    for _ in range(draw.randrange(25)):
        place = draw.choice([None, Span("f.py", draw.randint(1, 99), 3, 2)])
        with f.at(place), f.scope(draw.choice(["a", "b/c", "odd scope"])):
            values.append(random_node(f, draw, values))
    ends = [f.reduce_sum(draw.choice(values), over=(0, 1)) for _ in range(draw.randint(1, 3))]
    f.outputs = {f"out {i}": x.name for i, x in enumerate(ends)}
    return f.build()


def random_node(f: Builder, draw: random.Random, values: list[Value]) -> Value:
    a, b = draw.choice(values), draw.choice(values)
    match draw.randrange(5):
        case 0:
            return f.add(op_named(draw.choice(UNARY))(), [a], name=draw.choice(["h", "a b", "h.1"]))
        case 1:
            return f.binary(draw.choice(BINARY), a, b)
        case 2:
            square = f.einsum(a, b, spec="bi,bj->ij")
            return f.einsum(a, square, spec="bi,ij->bj")
        case 3:
            return a * draw.choice([0.5, -1e-30, 3, math.inf])
        case _:
            total = f.reduce_sum(a, over=(0,))
            return f.broadcast(total, shape=(4, 3), at=(1,), extents=(BATCH, None))


@pytest.fixture
def small_step() -> Graph:
    """A product, an elementwise op and a sum, with a scope and origins."""
    return make_small_step()


@pytest.fixture
def random_graph() -> Callable[[int], Graph]:
    """A legal graph for each seed."""
    return make_random_graph
