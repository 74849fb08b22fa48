"""The tree of groups in which the page shows a graph: parts of the step, and in them what was
written on one line, or what updates one variable."""

from __future__ import annotations

from typing import NamedTuple

from graphc.ir.graph import Graph, Node
from graphc.support.errors import source_line


class GroupKey(NamedTuple):
    """One step of a path in the tree. kind: 'part', 'scope', 'line' or 'variable'."""

    kind: str
    label: str


Path = tuple[GroupKey, ...]
_WORDS = {"grad": "backward", "update": "update"}


def paths(graph: Graph) -> dict[str, Path]:
    """The path of every node, from the part of the step down to its innermost group."""
    targets = _targets(graph)
    return {node.name: _path(node, targets.get(node.name, "")) for node in graph}


def part_of(node: Node) -> str:
    """Which part of the step a node belongs to."""
    return _WORDS.get(node.scope.split("/")[0], "forward")


def _path(node: Node, target: str) -> Path:
    part = part_of(node)
    first = GroupKey("part", part)
    if node.op.source == "input" or not node.operands:
        return (first,)
    if part == "update":
        return (first, GroupKey("variable", target)) if target else (first,)
    if node.origin is None:
        return (first,)
    line = (source_line(node.origin) or str(node.origin)).strip()
    return (first, GroupKey("line", f"{line}\n{node.origin.file}:{node.origin.line}"))


def _targets(graph: Graph) -> dict[str, str]:
    """The variable that each node of the update is for; none for a node that several share."""
    found: dict[str, set[str]] = {}
    for name, x in graph.updates.items():
        variable = graph.variables.get(name)
        found.setdefault(x, set()).add(variable.of or name if variable else name)
    for node in reversed(list(graph)):
        mine = found.get(node.name, set())
        for x in node.operands:
            theirs = found.setdefault(x, set())
            if len(theirs) < 2:
                theirs |= mine
    return {name: next(iter(x)) for name, x in found.items() if len(x) == 1}
