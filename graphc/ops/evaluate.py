"""Evaluate a graph node by node with the ops' own kernels: slow, and the measure of right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from graphc.graph import Graph

if TYPE_CHECKING:
    from graphc.op import Array


def evaluate(graph: Graph, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """The value of every node of an unplaced graph, given those of its inputs and variables."""
    values: dict[str, Array] = {}
    with np.errstate(all="ignore"):
        for node in graph:
            if node.op.source:
                values[node.name] = feeds[node.op.attributes["source_name"]]
            else:
                values[node.name] = node.op.run(*(values[x] for x in node.operands))
    return values
