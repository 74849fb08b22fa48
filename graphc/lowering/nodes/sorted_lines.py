"""Sorting without the order of the entries, where nobody else reads that.

order  = order along 1 of x            sorted along 1 of x
sorted = gather x, order         ->
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from graphc.lowering.nodes.nodes import LineNode, LoopNode, MapNode, Version


def with_sorted_lines(nodes: Sequence[LoopNode], shared: Collection[int]) -> list[LoopNode]:
    """The nodes, of which none looks entries up in their own order."""
    reads = Counter(r.value for n in nodes for r in n.reads)
    orders = {n.result: n for n in nodes if isinstance(n, LineNode) and n.function == "order"}
    mine = {v: n for v, n in orders.items() if reads[v] == 1 and v.buffer not in shared}
    changed = list[LoopNode]()
    for node in nodes:
        order = _order(node, mine)
        if order is not None:
            node = replace(order, function="sorted", result=node.result, dtype=node.dtype)
        changed.append(node)
    read = {r.value for n in changed for r in n.reads}
    return [n for n in changed if n.result not in mine or n.result in read]


def _order(node: LoopNode, orders: dict[Version, LineNode]) -> LineNode | None:
    """The order of what a node looks up by it, along the same dim."""
    if not isinstance(node, MapNode) or node.function != "gather" or node.target is not None:
        return None
    table, ids = node.reads
    order = orders.get(ids.value)
    if order is None or not ids.layout.is_dense or ids.layout.offset:
        return None
    (source,), dim = order.reads, order.dim
    strides = source.layout.strides
    lines = (*strides[:dim], 0, *strides[dim + 1 :])
    same = (table.value, table.layout.strides, table.layout.offset, node.shape, node.step)
    here = (source.value, lines, source.layout.offset, order.shape, strides[dim])
    return order if same == here and ids.layout.shape == order.shape else None


__all__ = ["with_sorted_lines"]
