"""What a traced step assumes of the size of its batch.

A function is traced for batches of two sizes: if the graphs differ in more than lengths, or if the
step needs the whole batch, it holds for batches of one size only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from graphc.ir.builder import Builder
from graphc.ir.graph import Graph, Node, subgraph_nodes
from graphc.support.errors import GraphcError, Span


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


REASONS = {
    True: "here the size of the batch is a plain number, the same for every batch",
    False: "this operation needs the whole batch",
}
REMEDIES = {
    True: "for the number of examples actually present, compute with n = x.shape[0] itself: 1 / n, "
    "np.sqrt(n), np.maximum(n, 1), np.zeros((n, 3)), np.arange(n)",
    False: "reductions, np.cumsum, x[::-1], np.roll and x[-1] take short batches; slices along "
    "the batch, np.sort and np.concatenate do not",
}


def size_notes(
    count: int | None, exact: Span | None, needs: Span | None, known: Iterable[GraphcError]
) -> list[GraphcError]:
    """A note that the step is for batches of `count` examples only, and where that comes from.

    known: notes that there are; one of the same line says it all
    """
    blamed = exact or needs
    if blamed is None or count is None or count < 2 or any(n.span == blamed for n in known):
        return []
    text = f"a batch of fewer than {count} examples will be refused: {REASONS[exact is not None]}"
    help = f"{REMEDIES[exact is not None]}; if all batches are equally long, ignore this"
    return [GraphcError("G0832", text, span=blamed, help=help)]


# -- nodes that need the whole batch: they make a run-time length a fixed one ---------------------


def needs_whole(f: Builder) -> Span | None:
    """The span of the first node that needs the whole batch."""
    return next((f.nodes[n].origin for n in f.unpaddable if n in f.nodes), None)


def measured(f: Builder, graph: Graph) -> Span | None:
    """The span of a node that needs the whole batch, if no result depends on such a node.

    The function may have used its shape only: a length that would not follow a short batch.
    """
    lost = [n for n in f.unpaddable if n in f.nodes]
    needed = subgraph_nodes(graph, graph.roots) if lost else set()
    return f.nodes[lost[0]].origin if lost and needed.isdisjoint(lost) else None
