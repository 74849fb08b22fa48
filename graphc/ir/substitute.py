"""Nodes computed again with another value in the place of one of theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphc.ir.builder import Builder
from graphc.ir.value import Value
from graphc.support.reachable import reachable


def substituted(f: Builder, values: Sequence[Value], new: Mapping[str, Value]) -> list[Value]:
    """The values as they are with others in the places of some nodes: what depends on them is added
    anew."""
    above = set(reachable((x.name for x in values), lambda name: f.nodes[name].operands))
    moved = dict(new)
    for node in [n for n in f.nodes.values() if n.name in above]:
        if any(x in moved for x in node.operands):
            operands = [moved.get(x) or Value(f, x) for x in node.operands]
            with f.at(node.origin):
                moved[node.name] = f.add(node.op, operands)
    return [moved.get(x.name, x) for x in values]
