"""The interface of transports: the calls that ranks make, handles, sessions.

A *rank* is one device. A *group* is a tuple of ranks in order, including the caller: the ranks
along some axes of the mesh. All members of a group make the same calls in the same order; the index
of a rank in the group is its *position*.

All parts of a tensor have the same padded shape, as `graphc.ir.placement` says: the valid entries
are in front, and `lengths[i]` entries of the part at position i are valid. Padding is never read,
and padding in a result is zero. A dim is counted from the front (0 <= dim < rank).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, TypeAlias, TypeVar

from graphc.ir.orders import Order
from graphc.ir.placement import ReduceOp

T = TypeVar("T")
Array: TypeAlias = Any  # a NumPy array, or an array of the transport's own device
Shape: TypeAlias = tuple[int, ...]
Group: TypeAlias = tuple[int, ...]
Lengths: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """What all members of a group must agree on. `where` (a node, a source line) is for reports.

    Reductions are elementwise, in the dtype of x, and give every rank the same bits. Their order:
    ADD_N is the transport's own fixed order (local: left to right); TREE is the balanced binary
    tree over positions: (0,1), (2,3), ... then pairs of pairs, a lone element moves up; ACCUMULATE
    is a running sum from the first position to the last.
    """

    group: Group
    where: str = field(default="", compare=False, repr=False, kw_only=True)

    def result(self, shape: Shape) -> Shape:
        """The shape of the result for an x of `shape`; asserts that the call fits it."""
        return shape

    def receives(self, rank: int) -> bool:
        """Whether this member gets a result."""
        return True


@dataclass(frozen=True, slots=True)
class BarrierCall(CollectiveCall):
    """Nobody continues before all have arrived. No x, no result."""

    def receives(self, rank: int) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class AllReduceCall(CollectiveCall):
    """P -> R: x and the result have the same shape; `out` may be x itself."""

    op: ReduceOp
    order: Order = Order.ADD_N


@dataclass(frozen=True, slots=True)
class TreeReduceCall(CollectiveCall):
    """P -> R over leaves (graphc.ir.leaf_tree): x is a forest, the result the sum of all members'
    leaves.

    Position i has leaves i * each to (i + 1) * each - 1, of which those from `present` on are
    absent; row k of its x is the k-th piece that they make, rows past the last one are not read.
    At least one leaf is present. The order is that of the tree over all leaves, whatever `each` is.
    roots: the ranks that get the result (P -> H); all where it is empty.
    """

    op: ReduceOp
    each: int
    present: int
    roots: Group = ()

    def result(self, shape: Shape) -> Shape:
        assert 0 < self.present <= self.each * len(self.group), f"{self} has no such leaves"
        return shape[1:]

    def receives(self, rank: int) -> bool:
        return not self.roots or rank in self.roots


@dataclass(frozen=True, slots=True)
class TreeReduceScatterCall(CollectiveCall):
    """P -> S(dim) over leaves: as TreeReduce, but position i gets its part of the sum only.

    spans: (offset, length) of every position's part of dim `dim`, padded to `capacity`. Each sends
    every other one its pieces of that one's part; parts may be alike.
    """

    op: ReduceOp
    each: int
    present: int
    dim: int
    spans: tuple[tuple[int, int], ...]
    capacity: int

    def result(self, shape: Shape) -> Shape:
        assert 0 < self.present <= self.each * len(self.group), f"{self} has no such leaves"
        total, n = shape[1 + self.dim], len(self.group)
        ok = len(self.spans) == n and all(0 <= o <= o + k <= total for o, k in self.spans)
        assert ok and max(k for _, k in self.spans) <= self.capacity, f"{self}: parts of {total}"
        return _resized(shape[1:], self.dim, self.capacity)


@dataclass(frozen=True, slots=True)
class ReduceCall(CollectiveCall):
    """P -> H: the rank `root` gets the result (`out` may be x); the others get None."""

    op: ReduceOp
    root: int
    order: Order = Order.ADD_N

    def result(self, shape: Shape) -> Shape:
        assert self.root in self.group, f"{self}: the root is outside the group"
        return shape

    def receives(self, rank: int) -> bool:
        return rank == self.root


@dataclass(frozen=True, slots=True)
class BroadcastCall(CollectiveCall):
    """H -> R: all get a copy of x of the rank `root`; elsewhere only x's type matters."""

    root: int

    def result(self, shape: Shape) -> Shape:
        assert self.root in self.group, f"{self}: the root is outside the group"
        return shape


@dataclass(frozen=True, slots=True)
class ReduceScatterCall(CollectiveCall):
    """P -> S(dim): x is whole; position i gets the next lengths[i] entries, padded to capacity."""

    op: ReduceOp
    dim: int
    lengths: Lengths
    capacity: int
    order: Order = Order.ADD_N

    def result(self, shape: Shape) -> Shape:
        _fits(self, self.lengths, self.capacity, shape[self.dim])
        return _resized(shape, self.dim, self.capacity)


@dataclass(frozen=True, slots=True)
class AllGatherCall(CollectiveCall):
    """S(dim) -> R: the valid parts of all, concatenated, padded to `total` entries."""

    dim: int
    lengths: Lengths
    total: int

    def result(self, shape: Shape) -> Shape:
        _fits(self, self.lengths, shape[self.dim], self.total)
        return _resized(shape, self.dim, self.total)


@dataclass(frozen=True, slots=True)
class AllToAllCall(CollectiveCall):
    """S(concat_dim) -> S(split_dim): an all_gather along one dim, split along another.

    x holds concat_lengths[i] entries along concat_dim and is whole along split_dim; the result has
    the entries of all along concat_dim, padded to `total`, and split_lengths[i] along split_dim,
    padded to `capacity`.
    """

    split_dim: int
    split_lengths: Lengths
    capacity: int
    concat_dim: int
    concat_lengths: Lengths
    total: int

    def result(self, shape: Shape) -> Shape:
        assert self.split_dim != self.concat_dim, f"{self} splits the dim that it concatenates"
        _fits(self, self.split_lengths, self.capacity, shape[self.split_dim])
        _fits(self, self.concat_lengths, shape[self.concat_dim], self.total)
        return _resized(_resized(shape, self.split_dim, self.capacity), self.concat_dim, self.total)


def _fits(call: CollectiveCall, lengths: Lengths, capacity: int, total: int) -> None:
    ok = len(lengths) == len(call.group) and min(lengths) >= 0
    assert ok and max(lengths) <= capacity and sum(lengths) <= total, (
        f"{call}: lengths {lengths} do not fit shards of {capacity} and a whole of {total}"
    )


def _resized(shape: Shape, dim: int, size: int) -> Shape:
    return (*shape[:dim], size, *shape[dim + 1 :])


class PeerFailed(BaseException):
    """Raised in a rank whose peer has failed, to end it. `Session.run` raises the peer's error.

    It is not an Exception, so that code which handles errors of its own work does not catch it.
    """


class Handle(Protocol):
    """A call in progress. Until `wait` returns, x and out belong to the transport."""

    def wait(self) -> Array:
        """The result: `out` if one was given. A second wait returns the same."""
        ...


class Communicator(Protocol):
    """The exchange as one rank sees it. `out` arrays are C-contiguous for speed, else copied.

    common: where all ranks are threads of this process that wait for each other without end, i64
            words that they all reach, by a cache line's beginning. They are 0 when a run begins,
            and the first of them is not when a rank has failed. None elsewhere.
    """

    rank: int
    size: int
    common: Any = None

    def start(self, call: CollectiveCall, x: Array = None, out: Array = None) -> Handle:
        """Begin a collective. Several may be in progress, if all ranks start them in one order."""
        ...

    def barrier(self, group: Group) -> None:
        self.start(BarrierCall(group)).wait()

    def meet_all(self) -> None:
        """Wait until all ranks have come this far. Raises PeerFailed if one never will."""
        if self.size > 1:
            self.barrier(tuple(range(self.size)))

    def all_reduce(
        self, x: Array, op: ReduceOp, group: Group, order: Order = Order.ADD_N, *, out: Array = None
    ) -> Array:
        return self.start(AllReduceCall(group, op, order), x, out).wait()

    def reduce(
        self, x: Array, op: ReduceOp, root: int, group: Group, order: Order = Order.ADD_N, *,
        out: Array = None,
    ) -> Array:  # fmt: skip
        return self.start(ReduceCall(group, op, root, order), x, out).wait()

    def broadcast(self, x: Array, root: int, group: Group, *, out: Array = None) -> Array:
        return self.start(BroadcastCall(group, root), x, out).wait()

    def reduce_scatter(
        self, x: Array, op: ReduceOp, group: Group, dim: int, lengths: Lengths, capacity: int,
        order: Order = Order.ADD_N, *, out: Array = None,
    ) -> Array:  # fmt: skip
        return self.start(
            ReduceScatterCall(group, op, dim, lengths, capacity, order), x, out
        ).wait()

    def all_gather(
        self, x: Array, group: Group, dim: int, lengths: Lengths, total: int, *, out: Array = None
    ) -> Array:
        return self.start(AllGatherCall(group, dim, lengths, total), x, out).wait()

    def all_to_all(
        self, x: Array, group: Group, split_dim: int, split_lengths: Lengths, capacity: int,
        concat_dim: int, concat_lengths: Lengths, total: int, *, out: Array = None,
    ) -> Array:  # fmt: skip
        call = AllToAllCall(
            group, split_dim, split_lengths, capacity, concat_dim, concat_lengths, total
        )
        return self.start(call, x, out).wait()


class TransportSession(Protocol):
    """`size` ranks that are ready to run. A context manager: leaving it closes it.

    A rank has the same communicator in every run.
    """

    size: int

    def run(self, fn: Callable[[Communicator], T]) -> list[T]:
        """Run fn on every rank; returns the results of this process's ranks, in rank order.

        If a rank raises, the others end at their next or current call, and its error is raised
        here, with a note `on device k` unless it is a GraphcError. Raises G0561 if the ranks' calls
        do not match, G0562 if a rank misses the deadline.
        """
        ...

    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


class Transport(Protocol):
    """A plug-in of the entry point group `graphc.transports`."""

    name: str

    def available(self) -> str | None:
        """None if it can run here, else the reason why not."""
        ...

    def open(self, size: int, *, deadline: float | None = None) -> TransportSession:
        """A session of `size` ranks; a rank waits at most `deadline` seconds (None: forever)."""
        ...
