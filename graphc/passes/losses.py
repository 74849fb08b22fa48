"""What a loss is to the batch: a sum over it, a mean, or something that was meant to be one.

The analysis asks how a value grows when every example of the batch is there k times over: a sum
over the batch grows as k, a count of examples too, their quotient does not grow. So a value has a
set of exponents, one for each of its terms: {1} is a sum, {0} a mean (masked and weighted means
among them), {-1} what was divided by the count twice, {0, 1} a sum and a regulariser. Where an
operation is not linear in what grows, nothing is known, and nothing is said.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from graphc.dims import parse_rule, reduced_dims
from graphc.errors import GraphcError, GraphcWarning
from graphc.graph import Graph, Node, Objective
from graphc.orders import REDUCTIONS
from graphc.types import TensorType

Growth = frozenset[int] | None  # the exponents of the terms; None where nothing is known
STILL: Growth = frozenset((0,))


def check_losses(graph: Graph) -> None:
    """Check each objective's loss for what is seldom meant, and for the reduction it is said to be.

    Raises G0309 for a reduction that does not agree with the loss. Warns G0310 of a loss that is
    divided by the number of examples twice, G0312 of a mean of means over groups whose sizes are
    data.
    """
    if not graph.objectives:
        return
    growth = growths(graph)
    for objective in graph.objectives:
        _check_reduction(graph, objective, growth[objective.loss])
        for warning in _complaints(graph, objective, growth):
            text = warning.render().replace("error", "warning", 1)
            warnings.warn(GraphcWarning(text), stacklevel=3)


# -- how values grow ------------------------------------------------------------------------------


def growths(graph: Graph) -> dict[str, Growth]:
    """How every node grows with the batch."""
    found: dict[str, Growth] = {}
    for node in graph:
        found[node.name] = _growth(node, graph, [found[x] for x in node.operands])
    return found


def _growth(node: Node, graph: Graph, given: Sequence[Growth]) -> Growth:
    op = node.op
    if not isinstance(node.type, TensorType) or not node.operands:
        return frozenset((1,)) if op.count and op.attributes.get("extent") else STILL
    if any(g is None for g in given):
        return None
    known = [g for g in given if g is not None]
    if op.denominator is not None and len(known[op.denominator]) == 1:
        (count,) = known[op.denominator]
        return frozenset(e - count for e in known[1 - op.denominator])
    if op.reduces == "sum" and op.linear:
        more = 1 if _sums_over_batch(node, graph) else 0
        return _product(known, more, op.linear)
    if op.jointly_linear:
        return frozenset().union(*known)
    return STILL if all(g == STILL for g in known) and op.reduces == "sum" else _peak(node, known)


def _product(
    known: Sequence[frozenset[int]], more: int, linear: tuple[tuple[int, ...], ...]
) -> Growth:
    """Of operands that each may be partial: their exponents add; of arms, either's."""
    if any(len(slots) > 1 for slots in linear):
        arms = {i for slots in linear for i in slots}
        return frozenset(e + more for i in arms for e in known[i])
    total = frozenset((more,))
    for i, g in enumerate(known):
        if (i,) not in linear and g != STILL:
            return None
        total = frozenset(a + b for a in total for b in g)
    return total


def _peak(node: Node, known: Sequence[frozenset[int]]) -> Growth:
    """A maximum of one thing grows as it does; of what else is not linear nothing is known."""
    alike = len(set(known)) == 1 and (known[0] == STILL or node.op.reduces != "sum")
    return known[0] if alike else None


def _sums_over_batch(node: Node, graph: Graph) -> bool:
    types = [graph[x].tensor for x in node.operands]
    if not any(t.extents for t in types):
        return False
    rule = parse_rule(node.op.dims(*types))
    return any(types[slot].extent(dim) for slot, dim in reduced_dims(rule))


# -- what is wrong with it ------------------------------------------------------------------------

_SAYS = {
    "mean": "it grows with the number of examples: it is a sum over the batch",
    "sum": "it is divided by the number of examples: it is a mean over the batch",
}


def _check_reduction(graph: Graph, objective: Objective, growth: Growth) -> None:
    """Raise G0309 where the loss is known to be another reduction than it is said to be."""
    said = objective.reduction
    if said not in REDUCTIONS or growth is None or not _depends_on_batch(graph, objective.loss):
        return
    if (said == "mean") != (1 not in growth):
        node = graph[objective.loss]
        origin = objective.origin or node.origin
        labels = ((node.origin, "the loss"),) if node.origin and node.origin != origin else ()
        other = "sum" if said == "mean" else "mean"
        help = f"take the {said} over the batch in the loss itself, or write reduction {other}"
        text = f"the loss is said to be a {said}, but {_SAYS[said]}"
        raise GraphcError("G0309", text, span=origin, labels=labels, help=help)


def _depends_on_batch(graph: Graph, name: str) -> bool:
    return any(n.op.source == "input" and n.tensor.extents for n in _above(graph, name))


def _complaints(
    graph: Graph, objective: Objective, growth: dict[str, Growth]
) -> Iterator[GraphcError]:
    above = list(_above(graph, objective.loss))
    batch = {t.shape[d] // e.unit for t in _inputs(graph) for d, e in enumerate(t.extents) if e}
    for node in above:
        if node.op.denominator is None:
            continue
        counted = _quotient(graph, node, growth)
        grown = growth[node.name]
        if grown is not None and grown and max(grown) < 0 and node.tensor.shape == ():
            yield _twice(node, objective, "by the number of examples again")
            return
        if counted and (size := _constant(graph, node.operands[1])) in batch:
            yield _twice(node, objective, f"by {size:g}, which is the batch's size")
            return
    yield from (_mean_of_means(m, objective) for m in _means(graph, above))


def _quotient(graph: Graph, node: Node, growth: dict[str, Growth]) -> bool:
    """Whether what a node divides is a number, and was divided by the count of examples already."""
    top = graph[node.operands[0]]
    if node.tensor.shape != () or growth[top.name] != STILL:
        return False
    return any(n.op.count and n.op.attributes.get("extent") for n in _above(graph, top.name))


def _twice(node: Node, objective: Objective, by: str) -> GraphcError:
    return GraphcError(
        "G0310",
        f"the loss is a mean over the batch, and is divided {by}",
        span=node.origin or objective.origin,
        help="one division is enough, on any number of devices: leave the second one out",
    )


@dataclass(frozen=True)
class _Means:
    """A mean over the batch of means over groups that are weighted by data."""

    inner: Node
    outer: Node


def _means(graph: Graph, above: Sequence[Node]) -> Iterator[_Means]:
    params = _trained(graph)
    for outer in above:
        if outer.op.denominator is not None and _is_batch_sum(graph, outer.operands[0]):
            for node in _terms(graph, graph[graph[outer.operands[0]].operands[0]]):
                if node.op.denominator is not None and _weighted(graph, node, params):
                    yield _Means(node, outer)
                    return


def _mean_of_means(found: _Means, objective: Objective) -> GraphcError:
    at = found.inner.origin
    return GraphcError(
        "G0312",
        "this is a mean over the batch of means over groups of different sizes: an entry of a "
        "small group counts more than one of a large group",
        span=found.outer.origin or objective.origin,
        labels=((at, "the mean over each group"),) if at else (),
        help="sum(values * weights) / sum(weights) over everything counts all entries alike",
    )


def _is_batch_sum(graph: Graph, name: str) -> bool:
    node = graph[name]
    return bool(node.operands) and node.op.linear == ((0,),) and _sums_over_batch(node, graph)


def _terms(graph: Graph, node: Node) -> Iterator[Node]:
    """The nodes that a value is made of by sums and by what keeps a mean one."""
    stack = [node]
    while stack:
        at = stack.pop()
        yield at
        if at.op.jointly_linear or (at.op.linear == ((0,),) and at.op.denominator is None):
            stack += [graph[x] for x in at.operands]


def _weighted(graph: Graph, node: Node, params: set[str]) -> bool:
    """Whether a node is sum(x * w) / sum(w) over the same dims, w being data."""
    top, low = graph[node.operands[0]], _bare(graph, graph[node.operands[1]])
    over = top.op.attributes.get("over")
    if not over or over != low.op.attributes.get("over") or type(top.op) is not type(low.op):
        return False
    w = low.operands[0]
    factors = graph[top.operands[0]].operands
    return w in factors and w not in params


def _bare(graph: Graph, node: Node) -> Node:
    """What a denominator is made of: behind broadcasts, and a bound that keeps it from 0."""
    while node.operands and not node.op.attributes.get("over"):
        real = [x for x in node.operands if _constant(graph, x) is None]
        if len(real) != 1:
            break
        node = graph[real[0]]
    return node


# -- graphs ---------------------------------------------------------------------------------------


def _inputs(graph: Graph) -> list[TensorType]:
    return [n.tensor for n in graph.inputs.values()]


def _trained(graph: Graph) -> set[str]:
    """The nodes that depend on a variable."""
    found: set[str] = set()
    for n in graph:
        if n.op.source == "variable" or any(x in found for x in n.operands):
            found.add(n.name)
    return found


def _above(graph: Graph, name: str) -> Iterator[Node]:
    """A node and all that it depends on."""
    seen, stack = {name}, [name]
    while stack:
        node = graph[stack.pop()]
        yield node
        fresh = [x for x in node.operands if x not in seen]
        seen.update(fresh)
        stack += fresh


def _constant(graph: Graph, name: str) -> float | None:
    """The number that a node is everywhere, through broadcasts and casts."""
    node = graph[name]
    while len(node.operands) == 1 and (node.op.view or node.op.linear == ((0,),)):
        node = graph[node.operands[0]]
    value = node.op.attributes.get("value") if node.op.lazy and not node.operands else None
    return float(value) if isinstance(value, int | float) else None
