"""The reference backend: each op's reference kernel, one at a time; all others must match it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphc.ir.graph import Graph, Node
from graphc.ir.op import Op
from graphc.ops.source import DimSize
from graphc.runtime.backends.executor import KernelBackend

Array: TypeAlias = NDArray[Any]


def _run(op: Op, operands: Sequence[Array]) -> Array:
    return op.run(*operands)


BACKEND = KernelBackend("reference", _run, executor="reference")


def interpret(
    graph: Graph,
    inputs: Mapping[str, Any] | None = None,
    variables: Mapping[str, Any] | None = None,
    counts: Mapping[str, int] | None = None,
) -> tuple[dict[str, Array], dict[str, Array]]:
    """(outputs, updates) of a graph, evaluated as on one device that holds everything.

    Placements are ignored: a conversion does not change the global value. counts gives the valid
    units of run-time dims for `dim_size`; by default, all are valid.
    """
    given = {"input": inputs or {}, "variable": variables or {}}
    values: dict[str, Any] = {}
    with np.errstate(all="ignore"):
        for node in graph:
            values[node.name] = _value(node, values, given, counts or {})
    return (
        {name: np.array(values[x]) for name, x in graph.outputs.items()},
        {name: np.array(values[x]) for name, x in graph.updates.items()},
    )


def _value(
    node: Node, values: Mapping[str, Any], given: Mapping[str, Mapping[str, Any]],
    counts: Mapping[str, int],
) -> Any:  # fmt: skip
    op = node.op
    if op.source:
        value = np.asarray(given[op.source][op.attributes["source_name"]])
        return value.astype(node.type.dtype.numpy)
    if isinstance(op, DimSize) and op.extent is not None:
        units = counts.get(op.extent.name, op.size // op.extent.unit)
        return op.of_count(units * op.extent.unit)
    return op.run(*(values[x] for x in node.operands))
