"""The ways of running on parts that can't change a bit, under a grid of fixed leaves and blocks.

Along an axis that deals out leaves, what depends on the leaves runs as it does over turns. Behind
their sums a value may be cut as variables are kept, but by ops that work entry by entry only: how
many parts there are depends on the devices.

Along an axis that cuts variables, an op that adds up may be cut only along a letter that it
computes in blocks, a sum becomes partial only at the root of the blocks' tree, and it is made whole
where it arises: what is computed from partial sums is another association of the same additions.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from graphc.ir.dims import Signature, parse_rule, reduced_dims
from graphc.ir.graph import Graph, Node
from graphc.ir.placement import Axis, Partial, R, State
from graphc.passes.placing.problem import Placed

Ways = dict[str, tuple[Signature, ...]]


def exact_ways(graph: Graph, ways: Ways, axis: Axis, placed: Placed) -> Ways:
    """Of every node's ways along an axis those that give the bits of the whole."""
    others = [w for name, w in placed.ways.items() if name != axis.name]
    found = {}
    for name, every in ways.items():
        elsewhere = [w[name].result for w in others]
        found[name] = tuple(w for w in every if _is_exact(w, graph[name], graph, elsewhere))
    return found


def _is_exact(way: Signature, node: Node, graph: Graph, elsewhere: Sequence[State]) -> bool:
    if any(isinstance(s, Partial) for s in way.operands):
        return False
    if not way.letter:
        return True
    match way.result:
        case Partial(op="sum"):
            return way.letter == _root(node, graph) and Partial() not in elsewhere
        case Partial():
            return True  # the largest of the largest is the largest
        case _:
            return not node.op.regroups or way.letter in node.op.block_letters


def _root(node: Node, graph: Graph) -> str:
    """The summed letter whose blocks meet last; '' where something else is summed after them."""
    types = [graph[x].tensor for x in node.operands]
    rule = parse_rule(node.op.dims(*types))
    summed = [
        (rule.operands[slot][d].letters[0], types[slot].extent(d)) for slot, d in reduced_dims(rule)
    ]
    if any(extent for _, extent in summed):
        return ""
    letters = {letter for letter, _ in summed}
    return next((x for x in node.op.block_letters if x in letters), "")


# -- along axes that deal out leaves ---------------------------------------------------------------


def varies(way: Signature) -> bool:
    """Whether a node that runs so along the leaves' time axis depends on the leaf."""
    return any(s != R for s in (*way.operands, way.result))


def ways_after_leaves(
    graph: Graph, ways: Ways, turns: Mapping[str, Signature], lazy: Container[str]
) -> Ways:
    """Of every node's ways along an axis that deals out leaves those that keep the bits.

    turns: how each node runs over turns; lazy: what is made as it is needed, but never partial
    where the turns don't have it so.
    """
    found = {}
    for name, every in ways.items():
        node, way = graph[name], turns[name]
        if name in lazy:
            found[name] = tuple(w for w in every if w == way or not _is_sum(w))
        elif varies(way):
            found[name] = (way,)
        elif len(every) > 1:
            split = every[1:] if node.op.elementwise and not node.tensor.extents else ()
            found[name] = (every[0], *(w for w in split if not _is_sum(w)))
        else:
            found[name] = every
    return found


def _is_sum(way: Signature) -> bool:
    return any(isinstance(s, Partial) for s in (*way.operands, way.result))
