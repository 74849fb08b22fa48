"""When each node of a partitioned graph runs: before, in or after the loop over turns, or last."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from graphc.errors import GraphcError
from graphc.graph import Graph, Node
from graphc.ops.collective import Conversion
from graphc.placement import R
from graphc.types import TensorType


class Phase(IntEnum):
    """The part of a step that a node runs in. SETUP is run once, when a program is loaded."""

    SETUP = 0
    PROLOGUE = 1
    LOOP = 2
    EPILOGUE = 3
    TAIL = 4


@dataclass
class Phases:
    """runs: node -> its phase. joins: time conversions that only pass on to the next one."""

    runs: dict[str, Phase]
    joins: set[str]

    def of(self, graph: Graph, phase: Phase) -> list[Node]:
        """The nodes of a phase, in order."""
        return [n for n in graph if self.runs[n.name] == phase]


def phases(graph: Graph, copied: set[str], exact: bool = False) -> Phases:
    """The phase of every node. copied: nodes whose value must be taken before any write.

    What does not vary over time runs once; it is put after the loop where only the epilogue needs
    it, so that less is kept across. The tail holds the elementwise ends of the updates: nothing in
    it can fail, so it may write variables in place. Raises G0501 where a second loop is needed.
    """
    found = Phases(*_by_time(graph, exact))
    if Phase.LOOP in found.runs.values():
        _sink(graph, found.runs)
    _mark_tail(graph, found.runs, copied)
    return found


def varies(node: Node, times: frozenset[str]) -> bool:
    """Whether a value differs from turn to turn."""
    return isinstance(node.type, TensorType) and any(a in times for a, _ in node.type.placement)


def _by_time(graph: Graph, exact: bool) -> tuple[dict[str, Phase], set[str]]:
    times = frozenset(a.name for a in graph.mesh.time)
    runs: dict[str, Phase] = {}
    ready: dict[str, Phase] = {}
    joins: set[str] = set()
    for node in graph:
        before = max((ready[x] for x in node.operands), default=Phase.PROLOGUE)
        varying = varies(node, times)
        if not varying and _is_constant(node, exact):
            runs[node.name] = ready[node.name] = Phase.SETUP
        elif varying or any(varies(graph[x], times) for x in node.operands):
            if before > Phase.LOOP:
                raise _barrier(graph, node, ready)
            runs[node.name] = Phase.LOOP
            ready[node.name] = Phase.LOOP if varying else Phase.EPILOGUE
            if varying and leaves_loop(node):
                joins.add(node.name)
        else:
            runs[node.name] = ready[node.name] = max(before, Phase.PROLOGUE)
    _check_joins(graph, joins)
    return runs, joins


def leaves_loop(node: Node) -> bool:
    """Whether a node gathers what the turns hold."""
    op = node.op
    return isinstance(op, Conversion) and op.over == "time" and op.states[0] != R


def _is_constant(node: Node, exact: bool) -> bool:
    """Whether a value is the same in every step: made from nothing, and not from a count."""
    counted = node.op.count or (isinstance(node.type, TensorType) and bool(node.type.extents))
    return not node.operands and not node.op.source and (exact or not counted)


def _barrier(graph: Graph, node: Node, ready: dict[str, Phase]) -> GraphcError:
    late = next(x for x in node.operands if ready[x] > Phase.LOOP)
    origin = graph[late].origin
    return GraphcError(
        "G0501",
        f"%{node.name} runs in every turn of the loop, but uses %{late}, which is known after it",
        span=node.origin,
        labels=((origin, f"%{late} needs all turns"),) if origin else (),
    )


def _check_joins(graph: Graph, joins: Iterable[str]) -> None:
    # A value gathered along one axis over time and still varying along another is complete only
    # after the loop: all that may be done with it is to gather it along the others as well.
    for name in joins:
        for user in graph.users[name]:
            if type(graph[user].op) is not type(graph[name].op):
                raise GraphcError(
                    "G0501",
                    f"%{user} uses %{name}, which is gathered over one axis of time only",
                    span=graph[user].origin,
                )


def _sink(graph: Graph, runs: dict[str, Phase]) -> None:
    for node in reversed(list(graph)):
        users = [runs[u] for u in graph.users[node.name]]
        if runs[node.name] == Phase.PROLOGUE and users and min(users) >= Phase.EPILOGUE:
            runs[node.name] = Phase.EPILOGUE


def _mark_tail(graph: Graph, runs: dict[str, Phase], copied: set[str]) -> None:
    ends = set(graph.updates.values())
    for node in reversed(list(graph)):
        users = graph.users[node.name]
        if not (users or node.name in ends) or node.name in copied or not _is_safe(node):
            continue
        once = runs[node.name] in (Phase.PROLOGUE, Phase.EPILOGUE)
        if once and all(runs[u] == Phase.TAIL for u in users):
            runs[node.name] = Phase.TAIL


def _is_safe(node: Node) -> bool:
    op = node.op
    return (op.elementwise or op.view) and op.positioned is None
