"""Consumers of inserted nodes: each `because` names one that is still there in the end.

A node is inserted when the first of its consumers is visited. That one may turn out to be computed
in vain: a lazy node of which only copies are used. Then another consumer is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from graphc.ir.graph import Because, Graph, Node, subgraph_nodes


def with_live_consumers(graph: Graph, asked: Mapping[str, Sequence[Because]]) -> Graph:
    """The graph, in which every inserted node that is needed names a consumer that is needed.

    asked: inserted node -> why, once for each consumer, the first one first
    """
    live = subgraph_nodes(graph, graph.roots)
    nodes = dict(graph.nodes)
    for name in reversed(nodes):  # users first
        why = nodes[name].because
        if name not in live or name not in asked or why is None or _is_live(why, live):
            continue
        another = next((w for w in asked[name] if _is_live(w, live)), None)
        why = another or _through(graph, nodes, name, why, live)
        nodes[name] = replace(nodes[name], because=why)
    return replace(graph, nodes=nodes)


def _is_live(why: Because, live: set[str]) -> bool:
    return bool(why.end) or why.consumer in live


def _through(
    graph: Graph, nodes: Mapping[str, Node], name: str, why: Because, live: set[str]
) -> Because:
    """The reason of a step on the way to another placement: that of the step after it."""
    users = [nodes[u] for u in graph.users[name] if u in live]
    then = next((u.because for u in users if u.because and _is_live(u.because, live)), None)
    if then is not None:
        return then.restated(why.by, why.rule, then.reason)
    return replace(why, consumer=users[0].name, operand=users[0].operands.index(name))
