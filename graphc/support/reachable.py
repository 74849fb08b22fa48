"""Walks over graphs of any kind, without recursion."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def reachable(roots: Iterable[T], following: Callable[[T], Iterable[T]]) -> Iterator[T]:
    """The roots, and all that follows from them, each once; depth first, from the last root on.

    following: what comes directly after an element. It is asked once for each, after the element
    was given; so the caller may stop before the end, or steer where the walk goes on
    """
    stack = list(dict.fromkeys(roots))
    seen = set(stack)
    while stack:
        x = stack.pop()
        yield x
        for y in following(x):
            if y not in seen:
                seen.add(y)
                stack.append(y)


__all__ = ["reachable"]
