"""Placing along an axis over time: the loop over microbatches.

Nothing is sent between devices here, so nothing is searched. What depends on the split batch runs
in a loop. A partial sum is accumulated at the first node that is not itself a sum of partial sums.
What follows runs once, after the loop. If a value from after a loop is used together with split
values, this is a barrier, and the user runs in a later loop (graphc.passes.partitioning.loops).
"""

from __future__ import annotations

from typing import TypeAlias

from graphc.ir.dims import Signature
from graphc.ir.graph import Node
from graphc.ir.placement import Partial, Split, State, Varying
from graphc.passes.placing.problem import AxisProblem

Pairs: TypeAlias = list[tuple[State, State]]  # of every operand: what it has, what is wanted


def place_over_time(problem: AxisProblem) -> dict[str, Signature]:
    """The signature of every node along a time axis."""
    states: dict[str, State] = {}
    chosen: dict[str, Signature] = {}
    for node in problem.graph:
        if node.op.source:
            signature = Signature((), problem.fixed[node.name])
        else:
            signature = _choose(problem, node, states)
        chosen[node.name], states[node.name] = signature, signature.result
    return chosen


def _choose(problem: AxisProblem, node: Node, states: dict[str, State]) -> Signature:
    whole, *rest = problem.signatures[node.name]
    have = [states[x] for x in node.operands]
    if Varying() in have:  # every turn makes its own
        return next((w for w in rest if w.result == Varying()), whole)
    split = any(isinstance(s, Split) for s in have)
    for signature in rest:
        pairs = list(zip(have, signature.operands, strict=True))
        if _keeps_splits(pairs) if split else _sums_of_sums(pairs):
            return signature
    return whole


def _keeps_splits(pairs: Pairs) -> bool:
    """Whether split operands are taken as they are. Other partial sums are completed first.

    A whole value is never made partial over time: it would count once per microbatch.
    """
    return all(
        have == wanted or (not isinstance(have, Split) and not isinstance(wanted, Partial))
        for have, wanted in pairs
    )


def _sums_of_sums(pairs: Pairs) -> bool:
    """Whether only partial sums are taken, and taken as they are."""
    return bool(pairs) and all(isinstance(s, Partial) and have == s for have, s in pairs)
