"""Varying values: values of which each replica has its own, in per-replica code.

They are known before anything is placed, from the graph alone: values are varying from
`per_replica` on, until a mark makes them global again. Differentiation, the checks and placing all
use this module.
"""

from __future__ import annotations

from graphc.ir.graph import Graph, Node
from graphc.ir.op import Op


def enters(op: Op, local: bool = False) -> bool:
    """Whether the result is each replica's own (local: of replicas that train independently)."""
    return op.replicas == "enter" and op.attributes.get("local", False) is local


def leaves(op: Op, local: bool = False) -> bool:
    """Whether the result is global, computed from the replicas' values."""
    return op.replicas == "leave" and op.attributes.get("local", False) is local


def varying_nodes(graph: Graph, local: bool = False) -> set[str]:
    """The nodes whose values differ between replicas."""
    varying: set[str] = set()
    for node in graph:
        if enters(node.op, local) or (
            not leaves(node.op, local) and any(x in varying for x in node.operands)
        ):
            varying.add(node.name)
    return varying


def writers(graph: Graph, name: str) -> list[Node]:
    """The marks that a varying value comes from: where it became varying."""
    inside, marks = varying_nodes(graph), []
    stack, seen = [name], {name}
    while stack:
        node = graph[stack.pop()]
        above = [x for x in node.operands if x in inside]
        if enters(node.op) and not above:
            marks.append(node)
        fresh = [x for x in above if x not in seen]
        seen.update(fresh)
        stack += fresh
    return marks
