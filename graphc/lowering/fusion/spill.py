"""Spilling: stores values that later phases of a kernel need, if recomputing them is expensive."""

from __future__ import annotations

from graphc.lowering.fusion.emit import Writer
from graphc.lowering.nodes.nodes import MapNode, ReduceNode, Version

CHEAP = 6  # nodes that are rather made again than stored
DEAR = frozenset(
    ("exp", "expm1", "log", "log1p", "tanh", "logistic", "erf", "sin", "cos", "pow", "arctan2")
)


def spilled(writer: Writer) -> set[Version]:
    """Values that must be stored for a later phase of the same rows: recomputing is expensive."""
    found: set[Version] = set()
    if not writer.group.columns:
        return found
    for i in writer.group.nodes:
        node = writer.nodes[i]
        for read in node.reads:
            j = writer.group.made.get(read.value)
            if j is None or j in writer.group.rows or isinstance(writer.nodes[j], ReduceNode):
                continue
            if writer.depth[j] < writer.depth[i] and _dear(writer, j):
                found.add(read.value)
    return found


def _dear(writer: Writer, i: int) -> bool:
    """Whether computing an entry of the value costs more than storing and loading it."""
    waiting, seen = [i], set[int]()
    while waiting:
        j = waiting.pop()
        if j in seen or j in writer.group.rows or isinstance(writer.nodes[j], ReduceNode):
            continue
        seen.add(j)
        node = writer.nodes[j]
        if isinstance(node, MapNode) and (node.function in DEAR or node.reads_anywhere):
            return True
        found = (writer.group.made.get(r.value) for r in node.reads)
        waiting += [k for k in found if k is not None]
    return len(seen) > CHEAP
