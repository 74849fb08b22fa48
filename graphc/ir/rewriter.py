"""Rewriter: how a pass makes a graph anew from another one.

A pass goes through the nodes in their order and puts each in, changed or not, leaves it out, or
inserts others before it. The rewriter keeps what a reader follows: a node's name, so that what was
asked of it is still found; the place in the source where it was written; and of what is new,
`because`. Where one value stands for another from now on, every later use is led to it, and so are
outputs, updates and losses.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from typing import Any

from graphc.ir.graph import Because, Graph, Node
from graphc.ir.op import Op
from graphc.ir.types import TensorType


class Names:
    """Gives names that are not taken. It counts on where it was, for each name."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def unique(self, name: str, *taken: Container[str]) -> str:
        """`name`, or `name.1`, `name.2`, ... where it is taken."""
        candidate, count = name, self._counts.get(name, 0)
        while any(candidate in names for names in taken):
            count += 1
            candidate = f"{name}.{count}"
        self._counts[name] = count
        return candidate


class Rewriter:
    """The graph being made. nodes: those that are there already, in order."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: dict[str, Node] = {}
        self._to: dict[str, str] = {}
        self._names, self._given = Names(), set[str]()

    def unique(self, name: str) -> str:
        """A name for a new node: neither of a node, before or now, nor given to another one."""
        name = self._names.unique(name, self.nodes, self.graph.nodes, self._given)
        self._given.add(name)
        return name

    def moved(self, node: Node) -> Node:
        """A node of the graph before, on the values that stand for its operands now."""
        operands = tuple(self._to.get(x, x) for x in node.operands)
        return node if operands == node.operands else replace(node, operands=operands)

    def put(self, node: Node) -> str:
        """Put a node in, as it is."""
        self.nodes[node.name] = node
        return node.name

    def insert(
        self,
        op: Op,
        operands: tuple[str, ...],
        like: Node,
        why: Because,
        *,
        name: str = "",
        type: TensorType | None = None,
    ) -> str:
        """Put a new node in, with the scope and the source of `like`, and its type unless given."""
        name = self.unique(name or like.name)
        type = like.type if type is None else type
        return self.put(Node(name, op, operands, type, like.scope, like.origin, why))

    def stand_in(self, old: str, new: str) -> None:
        """Let `new` stand for a value of the graph before: its later users take that one."""
        self._to[old] = new

    def finish(self, **changes: Any) -> Graph:
        """The graph that was made; outputs, updates and losses are led where their values are.

        changes: what else differs from the graph before, such as `outputs`.
        """

        def led(names: dict[str, str]) -> dict[str, str]:
            return {k: self._to.get(x, x) for k, x in names.items()}

        graph = self.graph
        losses = (replace(o, loss=self._to.get(o.loss, o.loss)) for o in graph.objectives)
        given = {
            "outputs": led(graph.outputs), "updates": led(graph.updates),
            "objectives": tuple(losses),
        }  # fmt: skip
        return replace(graph, nodes=self.nodes, **(given | changes))
