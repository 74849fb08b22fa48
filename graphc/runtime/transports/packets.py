"""What the processes of a group send each other in one exchange, and the memory for it.

The collectives of a step are the same in every step. So a small exchange keeps its memory, and what
a channel prepares for it, from one time to the next. A large one borrows its memory: many of them
together would keep as much as the model has.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np

from graphc.runtime.transports.bridge import Array, Channel, PreparedExchange, Request
from graphc.support.dataclass import dataclass

Rows: TypeAlias = Sequence[Array]  # what a position has: arrays of one shape
Pieces: TypeAlias = Callable[[Rows, int, int], list[Array]]
KEPT = 1 << 18  # bytes that an exchange sends and receives, up to which it keeps its memory
NO_ENTRIES = bytes(16)


class MemoryPool:
    """Memory that is borrowed and given back. The system clears new memory page by page, which
    takes longer than to send it to a process of the same host.

    most: bytes that are kept while nobody has borrowed them
    """

    def __init__(self, most: int = 1 << 26) -> None:
        self._most, self._lock = most, threading.Lock()
        self._free: list[Array] = []

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> tuple[Array, Array]:
        """An array without values, and the block that is to be given back."""
        size = prod(shape) * dtype.itemsize
        block = self._take(size)
        return block[:size].view(dtype).reshape(shape), block

    def _take(self, size: int) -> Array:
        with self._lock:
            fits = [k for k, x in enumerate(self._free) if size <= x.nbytes <= 2 * size]
            if fits:
                return self._free.pop(min(fits, key=lambda k: self._free[k].nbytes))
        return np.empty(size, np.uint8)

    def give(self, blocks: list[Array]) -> None:
        """Give blocks back; the list is empty then."""
        with self._lock:
            self._free += blocks
            blocks.clear()
            while sum(x.nbytes for x in self._free) > self._most:
                self._free.pop(0)


@dataclass(frozen=True)
class Members:
    """The processes that take part in a collective, as one of them sees them.

    me: this process; positions: of each process, the positions of its ranks in the group
    """

    channel: Channel
    pool: MemoryPool
    me: int
    positions: dict[int, tuple[int, ...]]

    @property
    def count(self) -> int:
        return len(self.positions)

    @property
    def mine(self) -> tuple[int, ...]:
        return self.positions[self.me]


class Packets:
    """One exchange, to be made again and again, though not at the same time.

    pieces(rows, i, q): what process q needs of the rows of position i: views
    rows: how many rows of `shape` each position has; same: whether all processes need the same
    """

    def __init__(
        self, members: Members, pieces: Pieces, rows: Sequence[int], shape: Sequence[int],
        dtype: np.dtype[Any], same: bool = False,
    ) -> None:  # fmt: skip
        self._members, self._pieces, self._dtype, self._same = members, pieces, dtype, same
        like = np.ndarray(tuple(shape), dtype, NO_ENTRIES, strides=(0,) * len(shape))
        self._others = [q for q in members.channel.members if q != members.me]

        def shapes(i: int, q: int) -> list[tuple[int, ...]]:
            return [x.shape for x in pieces([like] * rows[i], i, q)]

        self._gets = {
            q: [(i, shapes(i, members.me)) for i in members.positions[q]] for q in self._others
        }
        self._gives = {q: [s for i in members.mine for s in shapes(i, q)] for q in self._others}
        self._rows = len(rows)
        self._borrowed: list[Array] = []
        sizes = [sum(map(prod, x)) for x in self._gives.values()]
        sizes += [sum(prod(s) for _, x in got for s in x) for got in self._gets.values()]
        self._kept = _Kept(self) if sum(sizes) * dtype.itemsize <= KEPT else None

    def begin(self, xs: Sequence[Any]) -> tuple[Request, list[Any]]:
        """Begin it with the rows of each position of this process; what all positions then have
        sent, of which the pieces of this process's own are not copied."""
        me = self._members.me
        own = [(i, self._pieces(xs[i], i, me)) for i in self._members.mine]
        if self._kept is not None:
            got = self._kept.got.copy()
            request = self._kept.begin(xs)
        else:
            receives, got = self.receives(self._borrow)
            request = self._members.channel.exchange(self._sends(xs), receives)
        for i, pieces in own:
            got[i] = pieces
        return request, got

    def end(self) -> None:
        """What was received is not needed any more."""
        if self._borrowed:
            self._members.pool.give(self._borrowed)

    def free(self) -> None:
        """It is not made again."""
        if self._kept is not None:
            self._kept.prepared.free()

    # -- memory -----------------------------------------------------------------------------------

    def _borrow(self, size: int) -> Array:
        x, block = self._members.pool.empty((size,), self._dtype)
        self._borrowed.append(block)
        return x

    def receives(self, memory: Callable[[int], Array]) -> tuple[list[Any], list[Any]]:
        """Memory by process, and the pieces of it by position."""
        receives, got = list[Any](), list[Any]([None] * self._rows)
        for q in self._members.channel.members:
            if q == self._members.me:
                receives.append(None)
                continue
            shapes = [s for _, x in self._gets[q] for s in x]
            receives.append(memory(sum(map(prod, shapes))))
            views = iter(_views(receives[-1], shapes))
            for i, x in self._gets[q]:
                got[i] = [next(views) for _ in x]
        return receives, got

    def packed(self, memory: Callable[[int], Array]) -> tuple[list[Any], list[tuple[int, Any]]]:
        """Memory for what is sent, by process; and for whom, the pieces of it."""
        sends, views = list[Any](), list[tuple[int, Any]]()
        for q in self._members.channel.members:
            if q == self._members.me:
                sends.append(None)
            elif self._same and views:
                sends.append(next(x for x in sends if x is not None))
            else:
                sends.append(memory(sum(map(prod, self._gives[q]))))
                views.append((q, _views(sends[-1], self._gives[q])))
        return sends, views

    def fill(self, views: list[tuple[int, Any]], xs: Sequence[Any]) -> None:
        """Copy the pieces that are sent."""
        for q, into in views:
            number = iter(into)
            for i in self._members.mine:
                for piece in self._pieces(xs[i], i, q):
                    np.copyto(next(number), piece)

    def _sends(self, xs: Sequence[Any]) -> list[Any]:
        """What each process is sent, where it lies if that is one piece of memory."""
        lone = [self._lone(xs, q) for q in self._others]
        if any(x is None for x in lone):
            sends, views = self.packed(self._borrow)
            self.fill(views, xs)
            return sends
        return [
            None if q == self._members.me else lone.pop(0) for q in self._members.channel.members
        ]

    def _lone(self, xs: Sequence[Any], q: int) -> Array | None:
        pieces = [x for i in self._members.mine for x in self._pieces(xs[i], i, q)]
        return pieces[0] if len(pieces) == 1 and pieces[0].flags.c_contiguous else None


class _Kept:
    """The memory of a small exchange."""

    prepared: PreparedExchange

    def __init__(self, packets: Packets) -> None:
        def memory(size: int) -> Array:
            return np.empty(size, packets._dtype)

        self._packets = packets
        receives, self.got = packets.receives(memory)
        sends, self._views = packets.packed(memory)
        self.prepared = packets._members.channel.prepared(sends, receives)

    def begin(self, xs: Sequence[Any]) -> Request:
        self._packets.fill(self._views, xs)
        return self.prepared.start()


def _views(memory: Array, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Arrays of these shapes, one behind the other."""
    found, start = [], 0
    for shape in shapes:
        found.append(memory[start : start + prod(shape)].reshape(shape))
        start += prod(shape)
    return found
