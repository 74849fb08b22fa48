"""The graph: nodes by name and in order, and the same for networkx."""

from __future__ import annotations

import networkx

from graphc.ir.builder import Builder
from graphc.ir.graph import Graph
from graphc.testing.models import classifier, entry


def square() -> Graph:
    f = Builder("square")
    x = entry(f, "x", (2, 3))
    f.outputs["y"] = f.sub(x * x, x).name
    return f.build()


def test_networkx_sees_every_use_of_a_value() -> None:
    graph = square()
    assert list(graph.nx.nodes) == ["x", "mul", "sub"]
    edges = [("x", "mul", 0), ("x", "mul", 1), ("x", "sub", 1), ("mul", "sub", 0)]
    assert list(graph.nx.edges(keys=True)) == edges
    assert all(graph.nx.nodes[name]["node"] is graph[name] for name in graph.nodes)


def test_networkx_and_the_graph_know_the_same_users_and_operands() -> None:
    graph = classifier()
    for node in graph:
        slots = {slot: x for x, _, slot in graph.nx.in_edges(node.name, keys=True)}
        assert tuple(slots[i] for i in range(len(slots))) == node.operands
        users = [user for _, user in graph.nx.out_edges(node.name)]
        assert sorted(users) == sorted(graph.users[node.name])


def test_the_order_of_the_nodes_is_one_that_networkx_finds_topological() -> None:
    graph = classifier()
    position = {name: i for i, name in enumerate(graph.nodes)}
    assert all(position[x] < position[user] for x, user in graph.nx.edges())
    assert list(networkx.lexicographical_topological_sort(graph.nx, position.get)) == [*graph.nodes]
