"""The leaves of a batch as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.ir.graph import Graph

if TYPE_CHECKING:
    from graphc.ir.op import Array


def arrays_for(graph: Graph, leaves: Mapping[str, Any]) -> dict[str, Array]:
    """The leaves as arrays, numbers in the dtypes of the graph's inputs."""
    types = {name: node.tensor.dtype.numpy for name, node in graph.inputs.items()}
    numbers = bool | int | float
    return {
        name: np.asarray(x, types.get(name) if isinstance(x, numbers) else None)
        for name, x in leaves.items()
    }
