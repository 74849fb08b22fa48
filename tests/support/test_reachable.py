"""What can be reached in a graph, judged by networkx."""

from __future__ import annotations

import random

import networkx as nx

from graphc.support.reachable import reachable


def test_all_that_follows_from_the_roots_is_reached_once() -> None:
    for seed in range(50):
        r = random.Random(seed)
        graph = nx.gnp_random_graph(12, r.choice([0.05, 0.1, 0.3]), seed=seed, directed=True)
        roots = r.choices(range(12), k=r.randint(0, 3))
        found = list(reachable(roots, graph.successors))
        assert sorted(found) == sorted({*roots}.union(*(nx.descendants(graph, x) for x in roots)))


def test_the_walk_is_as_lazy_as_its_user() -> None:
    asked: list[int] = []

    def more(x: int) -> list[int]:
        asked.append(x)
        return [x + 1]  # without an end

    assert next(x for x in reachable([0], more) if x == 5) == 5
    assert asked == [0, 1, 2, 3, 4]
