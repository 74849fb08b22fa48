"""Disjoint sets: what is joined is one set, named by its first item; all else stays apart."""

from __future__ import annotations

import random

from graphc.support.disjoint_sets import DisjointSets


def test_items_are_alone_until_they_are_joined() -> None:
    sets = DisjointSets("abca")
    assert sets.sets() == [["a"], ["b"], ["c"]]
    sets.join("c", "b")
    assert sets.sets() == [["a"], ["b", "c"]]
    assert sets.find("c") == "b" == sets.find("b")
    assert "a" in sets and "d" not in sets


def test_sets_are_the_connected_components() -> None:
    rng = random.Random(0)
    for n in range(1, 30):
        pairs = [(rng.randrange(n), rng.randrange(n)) for _ in range(rng.randrange(n))]
        sets = DisjointSets(range(n))
        component = {i: {i} for i in range(n)}
        for a, b in pairs:
            sets.join(a, b)
            merged = component[a] | component[b]
            component |= dict.fromkeys(merged, merged)
        assert [sets.find(i) for i in range(n)] == [min(component[i]) for i in range(n)]
        assert {frozenset(s) for s in sets.sets()} == {frozenset(c) for c in component.values()}
