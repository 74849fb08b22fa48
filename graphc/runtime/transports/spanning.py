"""Collectives of groups whose ranks are in several processes.

What each process needs of each member's array is sent to it in one exchange, and it computes its
results as if all arrays were in one memory (graphc.runtime.transports.exchange): in the same order,
with the same bits. A large all-reduce is done in parts, one per process, which are exchanged at the
end (reduce-scatter and all-gather: Rabenseifner, "Optimization of Collective Reduction Operations",
2004). Where the order is the transport's own, each process first adds up what its members have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from math import prod
from typing import Any, TypeAlias

import numpy as np

from graphc.ir.placement import Partial, ReduceOp
from graphc.runtime.transports.bridge import Array, Channel, Request
from graphc.runtime.transports.exchange import (
    Scratch,
    add_in_order,
    along,
    exchange,
    join_parts,
    reduction_of,
)
from graphc.runtime.transports.local_first import LocalFirst, local_first
from graphc.runtime.transports.transport import CollectiveCall, Group, Parts

Steps: TypeAlias = Iterator[Request]  # each is done before the next one is asked for
NO_ENTRIES = bytes(16)
AT_ONCE = 1 << 17  # bytes that a process sends of a sum, up to which all of it goes to everybody


class Spanning:
    """One collective, begun by a process.

    here: the ranks of this process, each process has as many; xs: the arrays of its members by
    position, None for those of others; outs: of those that receive something
    """

    def __init__(
        self, call: CollectiveCall, xs: Sequence[Any], outs: Sequence[Any], channel: Channel,
        here: range,
    ) -> None:  # fmt: skip
        self.call, self.outs, self.channel = call, outs, channel
        self._each = len(here)
        self._members, self._positions = _processes(call.group, self._each)
        self.me = here.start // self._each
        self.mine = self._positions[self.me]
        order = call.collective.order if isinstance(call.collective.source, Partial) else None
        self._divided = local_first(order, call.leaves, self._members)
        self.xs = xs if self._divided is None else self._made_here(self._divided, xs)
        self.x = self.xs[self.mine[0]]
        self.results = [outs[i] for i in self.mine if outs[i] is not None]
        self.begun = False  # all exchanges that it makes
        self._steps: Steps = getattr(self, f"_{self.call.kind.value}")()
        self._request = next(self._steps, None)

    def done(self) -> bool:
        """Whether all results are written. What is next is begun in this call."""
        while self._request is not None and self._request.done():
            self._request = next(self._steps, None)
        self.begun |= self._request is None
        return self._request is None

    def _made_here(self, divided: LocalFirst, xs: Sequence[Any]) -> list[Any]:
        """What this process sends, [pieces, ...] for each of its positions."""
        own = [x if x is None or self.call.leaves else x[None] for x in xs]
        sent = divided.reduced(own, self.me, _reduce_op(self.call))
        first = self.mine[0]
        return [
            sent if i == first else sent[:0] if i in self.mine else None for i in range(len(xs))
        ]

    # -- what is sent -----------------------------------------------------------------------------

    def _exchanged(self, pieces: Any, got: list[Any], last: bool = True) -> Steps:
        """Send each process its pieces of this one's arrays; `got` becomes those of all members.

        pieces(x, i, q): what process q needs of x, the array of position i: a list of views. Those
        of this process's own arrays are not copied. last: whether no other exchange follows
        """
        sends, receives, shapes = list[Any](), list[Any](), list[Any]()
        got[:] = [None] * len(self._members)
        for q in self.channel.members:
            if q == self.me:
                sends.append(None)
                receives.append(None)
                shapes.append(None)
                for i in self.mine:
                    got[i] = pieces(self.xs[i], i, q)
            else:
                own = [p for i in self.mine for p in pieces(self.xs[i], i, q)]
                sends.append(_packed(own, self.x.dtype))
                each = [
                    [p.shape for p in pieces(self._like(i), i, self.me)] for i in self._positions[q]
                ]
                size = sum(prod(s) for member in each for s in member)
                receives.append(np.empty(size, self.x.dtype))
                shapes.append(each)
        self.begun = last
        yield self.channel.exchange(sends, receives)
        for q, each, data in zip(self.channel.members, shapes, receives, strict=True):
            for i, member in zip(self._positions[q], each or (), strict=q != self.me):
                got[i] = []
                for shape in member:
                    got[i].append(data[: prod(shape)].reshape(shape))
                    data = data[prod(shape) :]

    def _like(self, position: int) -> Array:
        """An array of the shape of what a position sends, of which no entry is asked for."""
        shape = self.x.shape
        if self._divided is not None:
            shape = (self._divided.sent_by(position), *shape[1:])
        return np.ndarray(shape, self.x.dtype, NO_ENTRIES, strides=(0,) * len(shape))

    @property
    def _leading(self) -> int:
        """Dims in front of the value's own: the pieces that are sent of it."""
        return self.call.leaves is not None or self._divided is not None

    def _flat(self, x: Array) -> Array:
        """x as [pieces, entries], or as [entries]."""
        return x.reshape(*x.shape[: self._leading], prod(x.shape[self._leading :]))

    def _sum(self, terms: Sequence[Array], out: Array) -> None:
        """Write the sum of the members' terms, in the order of the call; out may be one of them."""
        if self._divided is not None:
            rows = [np.ascontiguousarray(x) for x in self._divided.rows(terms)]
            add_in_order(rows, out, _reduce_op(self.call), self._divided.rest)
            return
        call = reduction_of(self.call)
        exchange(call, [np.ascontiguousarray(x) for x in terms], [out], 0, 1, Scratch())

    def _sum_once(self, terms: Sequence[Array]) -> None:
        """Write the sum to all results of this process. What is added may be one of them."""
        if self.results:
            self._sum(terms, self.results[0])
            self._copy_first()

    def _copy_first(self) -> None:
        """Write the first result to the other ones of this process."""
        for out in self.results[1:]:
            np.copyto(out, self.results[0])

    # -- kinds ------------------------------------------------------------------------------------

    def _all_reduce(self) -> Steps:
        got: list[Any] = []
        if self.x.nbytes * (len(self.channel.members) - 1) <= AT_ONCE:
            yield from self._exchanged(lambda x, i, q: [x], got)
            self._sum_once([x for (x,) in got])
            return
        out = self.results[0].reshape(-1)  # a view: results are contiguous
        count = len(self.channel.members)
        ends = [out.size * k // count for k in range(count + 1)]
        at = {q: slice(ends[k], ends[k + 1]) for k, q in enumerate(self.channel.members)}
        yield from self._exchanged(lambda x, i, q: [self._flat(x)[..., at[q]]], got, last=False)
        part = out[at[self.me]]
        if part.size:
            self._sum([x for (x,) in got], part)
        others = [q != self.me for q in self.channel.members]
        sends = [part if other else None for other in others]
        receives = [out[at[q]] if q != self.me else None for q in self.channel.members]
        self.begun = True
        yield self.channel.exchange(sends, receives, second=True)
        self._copy_first()

    def _reduce(self) -> Steps:
        homes = {rank // self._each for rank in self.call.owners}
        got: list[Any] = []
        yield from self._exchanged(lambda x, i, q: [x] * (q in homes), got)
        if self.results:
            self._sum_once([x for (x,) in got])

    def _reduce_scatter(self) -> Steps:
        after, got = self.call.after, list[Any]()
        assert after is not None
        dim = after.dim + self._leading
        yield from self._exchanged(partial(self._parts_of, after, dim), got)
        for k, i in enumerate(self.mine):
            n = after.spans[i][1]
            valid = along(self.outs[i], after.dim, 0, n)
            total = np.empty(valid.shape, self.x.dtype)
            if total.size:
                self._sum([pieces[k] for pieces in got], total)
            valid[...] = total
            along(self.outs[i], after.dim, n, None)[...] = 0

    def _broadcast(self) -> Steps:
        (owner,) = self.call.owners
        at, got = self.call.group.index(owner), list[Any]()
        yield from self._exchanged(lambda x, i, q: [x] * (i == at), got)
        for out in self.results:
            np.copyto(out, got[at][0])

    def _all_gather(self) -> Steps:
        before, got = self.call.before, list[Any]()
        assert before is not None
        yield from self._exchanged(lambda x, i, q: [_valid(x, before, i)], got)
        for out in self.results:
            join_parts(out, [x for (x,) in got], before)

    def _all_to_all(self) -> Steps:
        before, after, got = self.call.before, self.call.after, list[Any]()
        assert before is not None and after is not None

        def pieces(x: Array, i: int, q: int) -> list[Array]:
            return self._parts_of(after, after.dim, _valid(x, before, i), i, q)

        yield from self._exchanged(pieces, got)
        for k, i in enumerate(self.mine):
            n = after.spans[i][1]
            join_parts(along(self.outs[i], after.dim, 0, n), [parts[k] for parts in got], before)
            along(self.outs[i], after.dim, n, None)[...] = 0

    def _barrier(self) -> Steps:
        words = [
            np.zeros(1, np.uint8) if q != self.me else None for q in (*self.channel.members,) * 2
        ]
        count = len(self.channel.members)
        self.begun = True
        yield self.channel.exchange(words[:count], words[count:])

    def _parts_of(self, after: Parts, dim: int, x: Array, i: int, q: int) -> list[Array]:
        """The parts of x that the ranks of a process get."""
        spans = (after.spans[k] for k in self._positions[q])
        return [along(x, dim, start, start + n) for start, n in spans]


@lru_cache(maxsize=256)
def _processes(group: Group, each: int) -> tuple[tuple[int, ...], dict[int, tuple[int, ...]]]:
    """Of a group of ranks: the process of each position, and the positions of each process."""
    members = tuple(rank // each for rank in group)
    return members, {
        q: tuple(i for i, member in enumerate(members) if member == q) for q in members
    }


def _reduce_op(call: CollectiveCall) -> ReduceOp:
    source = call.collective.source
    assert isinstance(source, Partial), f"{call} adds nothing up"
    return source.op


def _valid(x: Array, parts: Parts, position: int) -> Array:
    return along(x, parts.dim, 0, parts.spans[position][1])


def _packed(pieces: Sequence[Array], dtype: np.dtype[Any]) -> Array:
    """All entries of some arrays, one after the other."""
    if len(pieces) == 1 and pieces[0].flags.c_contiguous:
        return pieces[0].reshape(-1)
    out = np.empty(sum(x.size for x in pieces), dtype)
    start = 0
    for x in pieces:
        out[start : start + x.size].reshape(x.shape)[...] = x
        start += x.size
    return out
