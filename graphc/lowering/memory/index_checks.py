"""Checks of indices run before the first write: what part of a region they need.

A step that fails before it has written a variable leaves everything unchanged. So a last region
with checks is divided in two: what the checks need, and the rest. If a kernel of the first part
would write a variable, an index that was checked before is not checked again, and what remains is
divided node by node, so that nothing is fused across the division.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod

from graphc.lowering.kernel.lowered import Home
from graphc.lowering.nodes.nodes import LoopNode, MapNode, Read, Version, is_checked

Ids = tuple[Version, int]  # an index tensor that is read whole: which, and how many there are


class Checked:
    """The indices that earlier nodes have checked, and below what they are."""

    def __init__(self) -> None:
        self._limits: dict[tuple[Home, Ids], int] = {}

    def add(self, nodes: Iterable[LoopNode], home: Home) -> None:
        """Note that these nodes have run, at these coordinates."""
        for node in nodes:
            if is_checked(node) and (ids := _ids(node)) is not None:
                limit = self._limits.get((home, ids), _limit(node))
                self._limits[home, ids] = min(limit, _limit(node))

    def known(self, nodes: Sequence[LoopNode], home: Home) -> list[LoopNode]:
        """The nodes, of which those check nothing whose index was checked before."""
        made = list[LoopNode]()
        for node in nodes:
            if isinstance(node, MapNode) and is_checked(node) and self._covers(node, home):
                node = replace(node, known=True)
            self.add([node], home)
            made.append(node)
        return made

    def _covers(self, node: MapNode, home: Home) -> bool:
        ids = _ids(node)
        found = [self._limits.get((h, ids)) for h in (home, ())] if ids is not None else []
        return any(limit is not None and limit <= node.limit for limit in found)


def _limit(node: LoopNode) -> int:
    return getattr(node, "limit", 0)


def _ids(node: LoopNode) -> Ids | None:
    """The indices of a node that checks them, where it reads all of them in their order."""
    read: Read = (
        node.reads[1] if isinstance(node, MapNode) and len(node.reads) > 1 else node.reads[0]
    )
    sizes = [n for n, s in zip(read.layout.shape, read.layout.strides, strict=True) if s]
    steps = [s for s in read.layout.strides if s]
    dense = all(s == prod(sizes[k + 1 :]) for k, s in enumerate(steps))
    return (read.value, prod(sizes)) if dense and not read.layout.offset else None


def cut(
    nodes: Sequence[LoopNode], homes: Mapping[int, int]
) -> tuple[list[LoopNode], list[LoopNode]]:
    """What checks need, themselves included, and the rest; both in the order of the nodes.

    homes: of each buffer in other devices' memory, what it is on this one
    """
    early: set[int] = set()
    wanted: set[Version] = set()
    buffers: set[int] = set()  # what an early node writes, or reads of other devices: all before
    for i in reversed(range(len(nodes))):
        node = nodes[i]
        touched = {node.result.buffer, *(r.value.buffer for r in node.reads)}
        if is_checked(node) or node.result in wanted or not buffers.isdisjoint(touched):
            early.add(i)
            wanted |= {r.value for r in node.reads}
            buffers |= {node.result.buffer}
            buffers |= {homes[r.value.buffer] for r in node.reads if r.value.buffer in homes}
    first = [x for i, x in enumerate(nodes) if i in early]
    return first, [x for i, x in enumerate(nodes) if i not in early]
