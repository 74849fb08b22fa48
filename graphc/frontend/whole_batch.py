"""Where a step needs the whole batch: there a dim of run-time length becomes one of this length."""

from __future__ import annotations

from graphc.ir.builder import Builder
from graphc.ir.graph import Graph, subgraph_nodes
from graphc.support.errors import Span


def needs_whole(f: Builder) -> Span | None:
    """The place of the first node that needs the whole batch."""
    return next((f.nodes[n].origin for n in f.unpaddable if n in f.nodes), None)


def measured(f: Builder, graph: Graph) -> Span | None:
    """The place of a node that needs the whole batch and that nothing needs, if all are such.

    Its shape may have been asked for: a length that would not follow a short batch.
    """
    lost = [n for n in f.unpaddable if n in f.nodes]
    needed = subgraph_nodes(graph, graph.roots) if lost else set()
    return f.nodes[lost[0]].origin if lost and needed.isdisjoint(lost) else None
