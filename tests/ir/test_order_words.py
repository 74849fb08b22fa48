"""The order of a sum is one object with one word; the word is read where a text comes in."""

from __future__ import annotations

from dataclasses import fields

import pytest

import graphc.ops  # noqa: F401  registers the ops
from graphc.ir.collectives import Collective
from graphc.ir.op import all_ops
from graphc.ir.orders import NO_ORDERS, Order, Orders, parse_order, parse_orders
from graphc.lowering.program.codec import Misfit, decode, encode
from graphc.lowering.program.instructions import Start
from graphc.ops.collective import Accumulation, AllReduce, ReduceScatter
from graphc.ops.elementwise import Aggregate
from graphc.strategies import Mirrored, parse_strategy
from graphc.support.errors import GraphcError
from graphc.text import parse_ir, print_ir

SUM = """graphc-ir 1

graph s {{
  %x : f32[4] = input {{source_name="x"}}
  %y : f32[4] = aggregate %x, %x{op}{node}

  output y = %y
}}
"""


def test_no_op_and_no_collective_holds_an_order_as_text() -> None:
    kinds = {c.__name__: f.type for c in (*all_ops().values(), Collective) for f in fields(c)
             if f.name == "order"}  # fmt: skip
    assert set(kinds.values()) == {"Order"} and {"Aggregate", "Accumulation", "RowSum"} <= set(
        kinds
    )


@pytest.mark.parametrize("order", Order)
def test_a_word_reads_back_as_its_order(order: Order) -> None:
    assert parse_order(str(order)) is order
    assert parse_strategy(f'mirrored(2, reduce="{order}")') == Mirrored(2, order)
    attribute = "" if order is Order.ADD_N else f' {{order="{order}"}}'
    text = SUM.format(op=attribute, node=f"  order {order}")
    graph = parse_ir(text)
    assert graph["y"].op == Aggregate(order) and graph["y"].order == Orders(order, order, order)
    assert parse_ir(print_ir(graph)) == graph and f"order {order}\n" in print_ir(graph)
    for op in (
        Aggregate(order),
        Accumulation("turn", order=order),
        ReduceScatter("a", 0, order=order),
    ):
        assert decode(type(op), encode(op)) == op


@pytest.mark.parametrize(
    "orders",
    [NO_ORDERS, Orders(turns=Order.TREE), Orders(Order.ADD_N, None, Order.ACCUMULATE)],
)
def test_choices_for_some_places_read_back(orders: Orders) -> None:
    assert parse_orders(str(orders)) == orders
    assert bool(orders) is bool(str(orders))


def test_a_sum_over_devices_may_be_called_all_reduce() -> None:
    assert parse_strategy('mirrored(2, reduce="all_reduce")') == Mirrored(2, Order.ADD_N)
    with pytest.raises(GraphcError, match="order='all_reduce': one of add_n, tree, accumulate"):
        parse_strategy('accumulate(2, order="all_reduce")')


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (SUM.format(op=' {order="three"}', node=""), "G0905", 'order takes "add_n" or "tree"'),
        (SUM.format(op="", node="  order three"), "G0308", "no order 'three'"),
        (SUM.format(op="", node='  order "turn=tree"'), "G0308", "did you mean 'turns'"),
    ],
)
def test_a_wrong_word_in_the_text_of_a_graph_is_told(text: str, code: str, words: str) -> None:
    with pytest.raises(GraphcError) as caught:
        parse_ir(text)
    assert caught.value.code == code and words in caught.value.render()
    assert caught.value.span is not None and caught.value.span.line == 5


def test_a_plan_begins_collectives_only() -> None:
    begun = encode(Start(AllReduce("data", order=Order.TREE), 0, 1, 1, "total"))
    assert decode(Start, begun).op == AllReduce("data", order=Order.TREE)
    with pytest.raises(Misfit, match=r"Start\.op: aggregate is no Conversion"):
        decode(Start, begun | {"op": encode(Aggregate())})


def test_a_wrong_word_in_a_plan_is_told() -> None:
    for word in ("three", "", 3, None, ["tree"]):
        with pytest.raises(Misfit, match="is no Order"):
            decode(Aggregate, {"@": "aggregate", "order": word})
