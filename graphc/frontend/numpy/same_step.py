"""Whether two traces of one function, for batches of two sizes, are the same step."""

from __future__ import annotations

from typing import Any

from graphc.ir.graph import Graph, Node


def same_but_for_lengths(a: Graph, b: Graph) -> bool:
    """Whether two graphs differ in nothing but the lengths of dims.

    Numbers that enter the step must be equal: constants, and arrays of constants of one shape.
    """
    return (
        len(a) == len(b)
        and a.outputs == b.outputs
        and a.updates == b.updates
        and a.variables.keys() == b.variables.keys()
        and all(a.variables[name].type == b.variables[name].type for name in a.variables)
        and all(map(_same, a, b))
    )


def _same(a: Node, b: Node) -> bool:
    if type(a.op) is not type(b.op) or a.operands != b.operands:
        return False
    if a.operands or a.op.source:
        return all(map(_fits, a.op.attributes.values(), b.op.attributes.values()))
    # A count that has no extent is of a node that needs the batch whole, and says so itself.
    return a.op.count or a.type != b.type or a.op == b.op


def _fits(a: Any, b: Any) -> bool:
    """Whether two attributes of nodes are equal, or may be lengths."""
    return a == b or isinstance(a, int | tuple)
