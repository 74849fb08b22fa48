"""What nodes cost, as the page tells it."""

from __future__ import annotations

import pytest

from graphc.analysis.traffic import sent_in_step
from graphc.inspect.page.costs import cost_of
from graphc.ir.builder import Builder
from graphc.ir.graph import Graph
from graphc.ir.op import op_named
from graphc.ir.placement import Axis, Mesh, Partial, Placement, Split
from graphc.ir.types import F32, TensorType
from graphc.ops.collective import Accumulation, AllReduce
from graphc.ops.source import Input

TURNS, SPLIT = 2, Placement((("data", Split(0)), ("turn", Split(0))))


@pytest.fixture
def graph() -> Graph:
    """A product split over two devices and two microbatches, its gradient summed over both."""
    f = Builder("costs", Mesh((Axis("data", 2), Axis("turn", TURNS, "time"))))
    x = f.add(Input("x"), type=TensorType((8, 3), F32, (), SPLIT), name="x")
    w = f.add(Input("w"), type=TensorType((3, 5), F32), name="w")
    y = TensorType((8, 5), F32, (), SPLIT)
    h = f.add(op_named("einsum")("mk,kn->mn"), [x, w], type=y, name="h")
    f.add(op_named("tanh")(), [h], type=y, name="t")
    both = TensorType((3, 5), F32, (), Placement((("data", Partial()), ("turn", Partial()))))
    dw = f.add(op_named("einsum")("mk,mn->kn"), [x, h], type=both, name="dw")
    one = both.placed(Placement((("data", Partial()),)))
    turn = f.add(Accumulation("turn"), [dw], type=one, name="turn")
    f.outputs["sum"] = f.add(AllReduce("data"), [turn], type=both.bare(), name="sum").name
    return f.build()


def test_a_product_counts_multiplications_and_additions_of_all_microbatches(graph: Graph) -> None:
    each = 2 * (8 // 2 // TURNS) * 3 * 5
    assert cost_of(graph["h"], graph).operations == TURNS * each
    assert cost_of(graph["dw"], graph).operations == TURNS * each


def test_a_vector_times_a_matrix_counts_its_additions_too() -> None:
    f = Builder("vector")
    x, w = (
        f.add(Input(n), type=TensorType(s, F32), name=n) for n, s in (("x", (3,)), ("w", (3, 1)))
    )
    y = f.add(op_named("einsum")("k,kn->n"), [x, w])
    assert cost_of(f.build()[y.name], f.build()).operations == 2 * 3


def test_what_is_elementwise_counts_its_entries(graph: Graph) -> None:
    cost = cost_of(graph["t"], graph)
    assert cost.operations == 8 // 2 * 5
    assert cost.bytes == 2 * 4 * (8 // 2 * 5)  # read and written


def test_a_sum_over_devices_is_sent_once_a_step(graph: Graph) -> None:
    assert sent_in_step(graph) == {"sum": 2 * (2 - 1) / 2 * 3 * 5 * 4}
    assert cost_of(graph["sum"], graph).operations == 0


def test_what_comes_from_outside_is_free(graph: Graph) -> None:
    assert cost_of(graph["x"], graph) == cost_of(graph["w"], graph)
    assert cost_of(graph["x"], graph).bytes == 0


def test_what_is_put_side_by_side_is_not_combined() -> None:
    f = Builder("side")
    parts = [f.add(Input(n), type=TensorType((4, 3), F32), name=n) for n in "abc"]
    joined = f.concat(*parts, axis=0)
    f.outputs["joined"] = joined.name
    graph = f.build()
    assert cost_of(graph[joined.name], graph).operations == 12 * 3
