"""Disjoint sets that grow together (union-find, Galler and Fischer 1964)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class DisjointSets(Generic[T]):
    """Items in disjoint sets, which can be joined. The first item of a set, in order, names it."""

    def __init__(self, items: Iterable[T]) -> None:
        self.items = list(dict.fromkeys(items))
        self._number = {x: i for i, x in enumerate(self.items)}
        self._parent = list(range(len(self.items)))

    def __contains__(self, item: object) -> bool:
        return item in self._number

    def _root(self, i: int) -> int:
        parent = self._parent
        while parent[i] != i:
            parent[i] = i = parent[parent[i]]
        return i

    def find(self, item: T) -> T:
        """The first item of the set that an item is in."""
        return self.items[self._root(self._number[item])]

    def join(self, a: T, b: T) -> None:
        """Join the sets of two items."""
        low, high = sorted((self._root(self._number[a]), self._root(self._number[b])))
        self._parent[high] = low

    def sets(self) -> list[list[T]]:
        """All sets, and the items of each, in the order of the items."""
        sets: dict[T, list[T]] = {}
        for x in self.items:
            sets.setdefault(self.find(x), []).append(x)
        return list(sets.values())
