"""The scopes of calls: which call of a function, a layer or a composite a node comes from.

Pictures fold what one call computes to one box, so each call is a scope of its own: `dense`, then
`dense.1`. Of composites, only the outermost is one, and only if it computes more than one node.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphc.ir.builder import Builder


def joined(path: str, name: str) -> str:
    """`path/name`"""
    return f"{path}/{name}" if path else name


class Calls:
    """The calls in a builder.

    path:  the functions and layers that are being called, without the numbers of their calls
    marks: whether composites are scopes: not those that passes and gradient rules call
    """

    def __init__(self, builder: Builder) -> None:
        self._builder, self.path, self.marks = builder, "", True
        self._counts: dict[str, int] = {}

    @contextmanager
    def function(self, name: str) -> Iterator[None]:
        """Nodes added inside this context belong to a call of the function or layer `name`."""
        f, outer, path = self._builder, self._builder.scope_path, self.path
        f.scope_path, self.path = self.numbered(name, outer), joined(path, name)
        try:
            yield
        finally:
            f.scope_path, self.path = outer, path

    @contextmanager
    def unmarked(self) -> Iterator[None]:
        """Composites called inside this context are no scopes."""
        marks, self.marks = self.marks, False
        try:
            yield
        finally:
            self.marks = marks

    @contextmanager
    def composite(self, name: str) -> Iterator[None]:
        """Nodes added inside this context belong to a call of the composite `name`."""
        if not self.marks:
            yield
            return
        nodes = self._builder.nodes
        start = len(nodes)
        with self.unmarked():
            yield
        added = list(islice(reversed(nodes), len(nodes) - start))
        if len(added) > 1:
            scope = self.numbered(name, self._builder.scope_path)
            nodes.update((x, replace(nodes[x], scope=scope)) for x in added)

    def numbered(self, name: str, outer: str) -> str:
        """The scope of the next call of a name: `outer/name`, then `outer/name.1`, ..."""
        path = joined(outer, name)
        count = self._counts.get(path, 0)
        self._counts[path] = count + 1
        return f"{path}.{count}" if count else path
