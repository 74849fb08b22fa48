"""Evaluate a graph node by node with the reference kernels: slow, and the oracle of the tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from graphc.ir.graph import Graph, Node

if TYPE_CHECKING:
    from graphc.ir.op import Array


def evaluate(graph: Graph, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """The value of every node of an unplaced graph, given those of its inputs and variables.

    A variable that is not fed is filled with its `fill`.
    """
    values: dict[str, Array] = {}
    with np.errstate(all="ignore"):
        for node in graph:
            if node.op.source:
                name = node.op.attributes["source_name"]
                values[node.name] = feeds[name] if name in feeds else _first(graph, name, node)
            else:
                values[node.name] = node.op.run(*(values[x] for x in node.operands))
    return values


def _first(graph: Graph, name: str, node: Node) -> Array:
    t = node.tensor
    return np.full(t.shape, graph.variables[name].fill, t.dtype.numpy)
