"""Inserted nodes: what they were made from, and who needs them.

A pass that inserts a node says why in its `because`. Around it there may be others: the steps of
one route, the parts of a bucket, what a loop keeps. Beyond them are nodes that were written, or
made by differentiation: the values that inserted nodes are made from, and their consumers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from graphc.ir.graph import Graph, Node


@dataclass(frozen=True)
class Consumer:
    """Who needs a value: operand number `operand` of a node; or, if `end` is 'output' or
    'update', a result of the step (operand is -1 then). value: the node that it takes."""

    name: str
    operand: int
    end: str
    value: str

    def __str__(self) -> str:
        return f"{self.end} {self.name}" if self.end else f"%{self.name}"


def consumers_of(graph: Graph, name: str) -> list[Consumer]:
    """The nodes and the results of the step that need a value, through inserted nodes or not."""
    ends = _ends(graph)
    found, stack, seen = dict[Consumer, None](), [name], {name}
    while stack:
        x = stack.pop()
        found |= dict.fromkeys(Consumer(end, -1, kind, x) for kind, end in ends.get(x, ()))
        for user in dict.fromkeys(graph.users[x]):
            node = graph[user]
            if node.because is None:
                found |= dict.fromkeys(_uses(node, x))
            elif user not in seen:
                seen.add(user)
                stack.append(user)
    return list(found)


def _ends(graph: Graph) -> Mapping[str, list[tuple[str, str]]]:
    """The outputs and updates that each node gives."""
    ends: dict[str, list[tuple[str, str]]] = {}
    for kind, names in (("output", graph.outputs), ("update", graph.updates)):
        for end, x in names.items():
            ends.setdefault(x, []).append((kind, end))
    return ends


def _uses(node: Node, x: str) -> Iterator[Consumer]:
    return (Consumer(node.name, i, "", x) for i, y in enumerate(node.operands) if y == x)


def values_behind(graph: Graph, name: str) -> list[str]:
    """The nodes that an inserted one is made from, and that no pass has inserted."""
    found, stack, seen = dict[str, None](), [name], {name}
    while stack:
        for x in graph[stack.pop()].operands:
            if graph[x].because is None:
                found[x] = None
            elif x not in seen:
                seen.add(x)
                stack.append(x)
    return list(found)
