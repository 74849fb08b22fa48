"""Sharded storage: variables that are split along an axis only for storage, and gathered for uses.

A value that depends only on such variables (a cast of a weight) is treated in the same way: it is
split where that costs nothing, and gathered where a node that combines it with other operands
prefers that.
"""

from __future__ import annotations

from collections.abc import Container

from graphc.ir.graph import Graph
from graphc.ir.placement import Axis, Split
from graphc.passes.placing.variables import variable_states
from graphc.strategies import MeshLayout


def stored_values(
    graph: Graph, layout: MeshLayout, axis: Axis, lazy: Container[str]
) -> frozenset[str]:
    """The reads of variables in sharded storage along an axis, and what depends only on them."""
    if axis.name not in layout.stored:
        return frozenset()
    states = variable_states(graph, layout, axis)
    params = (n for v, n in graph.reads.items() if graph.variables[v].kind != "slot")
    cut = {n.name for n in params if isinstance(states[str(n.op.attributes["source_name"])], Split)}
    return made_of(graph, cut, lazy)


def made_of(graph: Graph, sources: set[str], free: Container[str]) -> frozenset[str]:
    """The sources, and every node that depends only on them and on free values."""
    derived = set(sources)
    for node in graph:
        not_free = [x for x in node.operands if x in derived or x not in free]
        if not_free and all(x in derived for x in not_free):
            derived.add(node.name)
    return frozenset(derived)
