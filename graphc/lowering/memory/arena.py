"""Blocks of one piece of memory: the arena that contains a step's buffers."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import field

from graphc.support.dataclass import dataclass

ALIGN = 64  # bytes: a cache line, and the widest vector


def aligned(size: int, align: int = ALIGN) -> int:
    """`size` rounded up to whole lines."""
    return -(-size // align) * align


@dataclass
class Arena:
    """Free blocks of one piece of memory that grows at its end; neighbors are joined."""

    size: int = 0
    starts: dict[int, int] = field(default_factory=dict)  # start -> size
    ends: dict[int, int] = field(default_factory=dict)  # end -> start
    sizes: list[tuple[int, int]] = field(default_factory=list)  # (size, start), in order

    def take(self, size: int) -> int:
        """The offset of a block: in the smallest gap that holds it, else at the end."""
        if not size:
            return 0
        i = bisect_left(self.sizes, (size, 0))
        if i < len(self.sizes):
            have, start = self.sizes[i]
            self._drop(start)
            if have > size:
                self._keep(start + size, have - size)
            return start
        start = self.size
        if start in self.ends:  # grow the gap at the end
            start = self.ends[start]
            self._drop(start)
        self.size = start + size
        return start

    def give(self, start: int, size: int) -> None:
        """Free a block."""
        if not size:
            return
        if start in self.ends:
            before = self.ends[start]
            size += self._drop(before)
            start = before
        if start + size in self.starts:
            size += self._drop(start + size)
        self._keep(start, size)

    def _keep(self, start: int, size: int) -> None:
        self.starts[start], self.ends[start + size] = size, start
        insort(self.sizes, (size, start))

    def _drop(self, start: int) -> int:
        size = self.starts.pop(start)
        del self.ends[start + size]
        self.sizes.pop(bisect_left(self.sizes, (size, start)))
        return size
