"""Graphs for the tests of the pictures."""

from __future__ import annotations

import pytest

from graphc.ir.builder import Builder, Value
from graphc.ir.graph import Because, Graph, Variable
from graphc.ir.op import op_named
from graphc.ir.placement import Axis, Mesh, Partial, Placement
from graphc.ir.types import F32, Extent, TensorType
from graphc.ops.collective import Accumulation, AllReduce
from graphc.ops.source import Input
from graphc.support.errors import Span

NASTY = (
    'a"b\\ <script>alert(1)</script> & \n%%{x}%% `c` #35; ]) --> \x00\u2028\ud800 é \\N &lt; ]]>'
)
GRADIENT = TensorType((4, 4), F32)


def layered(layers: int) -> Graph:
    """A stack of layers with hand-written gradients, exchanges and updates."""
    f = Builder("stack", Mesh((Axis("data", 4), Axis("turn", 2, "time"))))
    x = f.add(Input("x"), type=TensorType((8, 4), F32, (Extent("batch"), None)), name="x")
    weights, values = [], [x]
    for i in range(layers):
        with f.at(Span("stack.gc", i + 1, 5, 3)), f.scope(f"layer{i}"):
            weights.append(f.declare(Variable(f"w{i}", GRADIENT)))
            values.append(f.tanh(f.einsum(values[-1], weights[-1], spec="bk,kn->bn")))
    f.outputs["loss"] = f.reduce_sum(values[-1], over=(0, 1)).name
    g = values[-1]
    for w, value in zip(reversed(weights), reversed(values[:-1]), strict=True):
        with f.scope("grad"):
            dw = exchanged(f, f.einsum(value, g, spec="bk,bn->kn"))
            g = f.einsum(g, w, spec="bn,kn->bk")
        with f.scope("update"):
            f.updates[w.name] = (w - dw * 0.1).name
    return f.build()


def exchanged(f: Builder, dw: Value) -> Value:
    why = Because("partition", "P -> R", "update", "the update needs it whole")
    partial = Placement((("data", Partial()),))
    turn = f.add(Accumulation("turn"), [dw], type=GRADIENT.placed(partial), because=why)
    return f.add(AllReduce("data"), [turn], type=GRADIENT, because=why)


@pytest.fixture
def step() -> Graph:
    """Three layers: some fifty nodes."""
    return layered(3)


@pytest.fixture
def deep() -> Graph:
    """Two hundred layers: some two thousand nodes."""
    return layered(200)


@pytest.fixture
def nasty() -> Graph:
    """Two nodes whose every name and text is hostile."""
    f = Builder(NASTY)
    t = TensorType((8,), F32, (Extent(NASTY, 2),))
    x = f.add(Input(NASTY), type=t, name=NASTY)
    with f.at(Span(NASTY, 3, 4, 5)), f.scope(NASTY):
        why = Because(NASTY, NASTY, NASTY, NASTY)
        y = f.add(op_named("tanh")(), [x], because=why, name=NASTY + "2")
    f.outputs[NASTY] = y.name
    return f.build()
