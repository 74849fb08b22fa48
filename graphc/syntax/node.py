"""What all nodes of a syntax tree share: span, equality, printing, and walks without recursion."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Any, TypeVar, dataclass_transform

from graphc.support.dataclass import dataclass
from graphc.support.errors import Span

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def node(kind: type[_T]) -> type[_T]:
    """Make `kind` a frozen dataclass that compares and prints as `SyntaxNode` does, without
    recursion."""
    return dataclass(frozen=True, slots=True, eq=False, repr=False)(kind)


@node
class SyntaxNode:
    """The base of all nodes: its span in the source. A statement with a block has its header's
    span."""

    span: Span = field(kw_only=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SyntaxNode) and _flat(self) == _flat(other)

    def __hash__(self) -> int:
        return hash(tuple(_flat(self)))

    def __repr__(self) -> str:
        words: list[str] = []
        stack: list[Any] = [self]
        while stack:
            match stack.pop():
                case SyntaxNode() as inner:
                    stack += [")", *_between(inner.values()), f"{type(inner).__name__}("]
                case tuple() as several:
                    stack += ["]", *_between(several), "["]
                case _Leaf(value):
                    words.append(repr(value))
                case str() as word:
                    words.append(word)
        return "".join(words)

    def values(self) -> tuple[Any, ...]:
        """What the node says: nodes, tuples of nodes, and plain values; not where it stands."""
        names = (n for n in self.__dataclass_fields__ if n not in ("span", "comments"))
        return tuple(getattr(self, name) for name in names)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A plain value on the way to being printed."""

    value: object


def _between(values: tuple[Any, ...]) -> Iterator[Any]:
    """The values last first, with commas between."""
    for at, value in enumerate(reversed(values)):
        if at:
            yield ", "
        yield value if isinstance(value, SyntaxNode | tuple) else _Leaf(value)


def _flat(root: SyntaxNode) -> list[object]:
    """The content of a tree as one list: kinds of nodes, lengths, and plain values with their
    types."""
    flat: list[object] = []
    stack: list[Any] = [root]
    while stack:
        match stack.pop():
            case SyntaxNode() as inner:
                flat.append(type(inner))
                stack += reversed(inner.values())
            case tuple() as several:
                flat.append(len(several))
                stack += reversed(several)
            case value:
                flat.append((type(value), value))  # True is not 1
    return flat


def children(node: SyntaxNode) -> Iterator[SyntaxNode]:
    """The nodes directly below `node`, in the order of its fields."""
    for value in node.values():
        match value:
            case SyntaxNode():
                yield value
            case tuple():
                yield from value
            case _:
                pass


def walk(node: SyntaxNode) -> Iterator[SyntaxNode]:
    """`node` and all below it, parents first. Iterative."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack += reversed(list(children(node)))
