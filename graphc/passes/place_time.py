"""Placing along an axis over time: the loop over microbatches.

Nothing is moved between devices here, so nothing is searched. What depends on the cut batch runs
in the loop; a partial sum is accumulated at the first node that is not itself a sum of partial
sums; what follows runs once, after the loop. A value from after the loop that is used inside it
would need a second loop: a barrier.
"""

from __future__ import annotations

from graphc.dims import Signature
from graphc.errors import GraphcError
from graphc.graph import Node
from graphc.passes.problem import AxisProblem
from graphc.placement import Partial, R, Split, State


def place_over_time(problem: AxisProblem) -> dict[str, Signature]:
    """The signature of every node along a time axis. Raises G0403 at a barrier."""
    states: dict[str, State] = {}
    after: set[str] = set()  # values that need all turns
    chosen: dict[str, Signature] = {}
    for node in problem.graph:
        if node.op.source:
            way = Signature((), problem.fixed[node.name])
        else:
            way = _choose(problem, node, states, after)
        chosen[node.name], states[node.name] = way, way.result
        _note_level(node, way, states, after)
    return chosen


def _note_level(node: Node, way: Signature, states: dict[str, State], after: set[str]) -> None:
    pairs = zip(node.operands, way.operands, strict=True)
    converted = any(states[x] not in (R, s) for x, s in pairs)
    if converted or any(x in after for x in node.operands):
        after.add(node.name)


def _choose(
    problem: AxisProblem, node: Node, states: dict[str, State], after: set[str]
) -> Signature:
    whole, *rest = problem.ways[node.name]
    varying = [x for x in node.operands if states[x] != R]
    if not varying:
        return whole
    split = [x for x in varying if isinstance(states[x], Split)]
    for way in rest:
        if _native(node, way, states, after) and (split or _all_partial(way)):
            return way
    late = [x for x in node.operands if x in after]
    if split and late:
        raise _barrier(problem, node, split[0], late[0])
    return whole


def _native(node: Node, way: Signature, states: dict[str, State], after: set[str]) -> bool:
    """Whether the node can run this way inside the loop, without a conversion out of it."""
    for x, wanted in zip(node.operands, way.operands, strict=True):
        if x in after or (states[x] != R and states[x] != wanted):
            return False
        if states[x] == R and isinstance(wanted, Partial):
            return False  # R -> P over time would count the value once per turn
    return True


def _all_partial(way: Signature) -> bool:
    return all(isinstance(s, Partial) for s in way.operands)


def _barrier(problem: AxisProblem, node: Node, split: str, late: str) -> GraphcError:
    graph = problem.graph
    labels = [(graph[late].origin, f"%{late} needs all {problem.axis.size} microbatches")]
    return GraphcError(
        "G0403",
        f"%{node.name} uses %{late}, which is known only after the last microbatch, together "
        f"with %{split}, which differs from microbatch to microbatch",
        span=node.origin,
        labels=tuple((o, w) for o, w in labels if o is not None),
        help="run this step without accumulate, or make the value not depend on the batch",
    )
