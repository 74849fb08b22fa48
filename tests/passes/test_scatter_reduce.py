"""A sum that is only cut is a reduce_scatter; one that is only joined again is an all_reduce."""

from __future__ import annotations

from graphc.ir.builder import Value
from graphc.ir.graph import Graph
from graphc.ir.orders import Order
from graphc.ir.placement import Axis, Mesh, Partial, Split
from graphc.lowering.program.program import Program, Start
from graphc.lowering.schedule.schedule import schedule
from graphc.ops.collective import (
    AllGather,
    AllReduce,
    Conversion,
    ReduceScatter,
    ToSplit,
)
from graphc.ops.unary import Tanh
from graphc.passes.partitioning.scatter_reduce import ScatterReduce
from graphc.testing.placed_graphs import PlacedGraph
from graphc.verify import verify

MESH = Mesh((Axis("data", 4),))


def chain(*ops: Conversion, also: bool = False) -> Graph:
    """A sum through conversions to an output; also: the first one's result is needed as it is."""
    g = PlacedGraph(MESH)
    x: Value = g.variable("x", (8, 2), data=Partial())
    first = x = g.convert(x, ops[0])
    for op in ops[1:]:
        x = g.convert(x, op)
    state = x.type.placement["data"]
    y = g.node(Tanh(), [x], data=state)
    g.output("y", g.convert(y, AllGather("data", 0)) if state == Split(0) else y)
    if also:
        g.output("z", first)
    return g.build()


def sent(program: Program) -> list[str]:
    return [x.op.name for x in program.instructions if isinstance(x, Start)]


CUT = (AllReduce("data"), ToSplit("data", 0))
JOINED = (ReduceScatter("data", 0), AllGather("data", 0))


def test_a_sum_of_which_each_needs_its_slice_is_scattered() -> None:
    before, after = chain(*CUT), ScatterReduce().run(chain(*CUT))
    verify(after, "placed")
    assert sent(schedule(before)) == ["all_reduce", "all_gather"]
    assert sent(schedule(after)) == ["reduce_scatter", "all_gather"]
    assert schedule(after).sent_bytes < schedule(before).sent_bytes


def test_a_scattered_sum_that_all_need_whole_is_reduced() -> None:
    before, after = chain(*JOINED), ScatterReduce().run(chain(*JOINED))
    verify(after, "placed")
    assert sent(schedule(before)) == ["reduce_scatter", "all_gather"]
    assert sent(schedule(after)) == ["all_reduce"]
    assert schedule(after).sent_bytes == schedule(before).sent_bytes


def test_what_is_needed_as_it_is_stays() -> None:
    graph = chain(*CUT, also=True)
    assert ScatterReduce().run(graph) == graph


def test_a_fixed_order_of_additions_stays() -> None:
    graph = chain(AllReduce("data", order=Order.TREE), ToSplit("data", 0))
    assert ScatterReduce().run(graph) == graph


def test_the_one_that_is_left_says_what_it_does() -> None:
    after = ScatterReduce().run(chain(*CUT))
    (why,) = [n.because for n in after if isinstance(n.op, ReduceScatter)]
    assert why is not None and why.reason == "all_reduce and tensor_split in one"
