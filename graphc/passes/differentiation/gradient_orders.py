"""Chosen orders of summation: the nodes that they apply to, and the strategies that forbid them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice

from graphc.ir.builder import Builder
from graphc.ir.graph import Graph, Node
from graphc.ir.orders import NO_ORDERS, Order, Orders
from graphc.strategies import Strategy, layout_of
from graphc.support.errors import GraphcError, Span


def check_orders(graph: Graph, strategy: Strategy) -> None:
    """Raise G0490 if an order is requested for sums that a reproducible run fixes as a tree."""
    layout = layout_of(strategy)
    if layout.grid is None:
        return
    asked: list[tuple[str, Order | None, Span | None]] = []
    for chosen, origin in (
        *((o.order, o.origin) for o in graph.objectives),
        *((v.order, v.origin) for v in graph.variables.values()),
    ):
        asked += [("turns", chosen.turns, origin), ("devices", chosen.devices, origin)]
    spatial = {a.name for a in layout.mesh.space}
    asked += [("devices" if a in spatial else "turns", o, None) for a, o in layout.orders]
    for place, order, origin in asked:
        if order not in (None, Order.TREE):
            raise GraphcError(
                "G0490",
                f"{place}={order} is not possible: {strategy} fixes all sums over microbatches "
                "and devices",
                span=origin,
                help="they are one balanced tree over the leaves of the batch; leave out the order",
            )


def mark_orders(f: Builder, start: int, gradients: Mapping[str, Orders]) -> None:
    """Mark the nodes that belong to a single gradient with the order of its sums.

    Somewhere between its contributions and its end, a gradient is a partial sum over microbatches
    and devices: at the contributions, at their sum, or after the division by the number of
    examples. So the gradient is marked, and backwards from it all nodes without other users, up to
    the first products and reductions, which give the contributions. start: the first node of the
    backward pass.
    """
    marks = {g: o.of_sums() for g, o in gradients.items() if o.of_sums()}
    if not marks:
        return
    new_nodes = list(islice(f.nodes.values(), start, None))
    users: dict[str, list[Node]] = {}
    for node in new_nodes:
        for x in node.operands:
            users.setdefault(x, []).append(node)
    for node in reversed(new_nodes):
        if node.name not in marks and (mark := _inherited(node, users, marks)):
            marks[node.name] = mark
    for name, mark in marks.items():
        f.nodes[name] = replace(f.nodes[name], order=mark)


def _inherited(node: Node, users: Mapping[str, list[Node]], marks: Mapping[str, Orders]) -> Orders:
    """The order of all users of a node, if it holds for its operands too."""
    by = users.get(node.name, [])
    orders = {marks.get(u.name, NO_ORDERS) if _passes_sums(u) else NO_ORDERS for u in by}
    return orders.pop() if len(orders) == 1 else NO_ORDERS


def _passes_sums(node: Node) -> bool:
    """Whether a sum of parts of the operand is a sum of parts of the result, entry by entry."""
    return node.op.elementwise or node.op.view
