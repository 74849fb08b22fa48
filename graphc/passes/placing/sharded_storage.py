"""Stored variables: cut along an axis only to be kept, whole for every use.

What is made of them alone (a cast of a weight) is as they are: it is cut where that costs nothing,
and whole where a node that takes it with something else is better off so.
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
    """The reads of variables that are stored cut along an axis, and what is made of them alone."""
    if axis.name not in layout.stored:
        return frozenset()
    states = variable_states(graph, layout, axis)
    params = (n for v, n in graph.reads.items() if graph.variables[v].kind != "slot")
    cut = {n.name for n in params if isinstance(states[str(n.op.attributes["source_name"])], Split)}
    return made_of(graph, cut, lazy)


def made_of(graph: Graph, sources: set[str], free: Container[str]) -> frozenset[str]:
    """The sources, and every node that is made of them and of free values alone."""
    found = set(sources)
    for node in graph:
        made = [x for x in node.operands if x in found or x not in free]
        if made and all(x in found for x in made):
            found.add(node.name)
    return frozenset(found)
