"""The interface of transports: the calls that ranks make, what is done for them, handles, sessions.

A *rank* is one device. A *group* is a tuple of ranks in order, including the caller: the ranks
along some axes of the mesh. All members of a group make the same calls in the same order; the index
of a rank in the group is its *position*.

All parts of a tensor have the same padded shape, as `graphc.ir.placement` says, with the valid
entries in front. Padding is never read, and padding in a result is zero. A dim is counted from the
front (0 <= dim < rank).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import field
from functools import lru_cache
from typing import Any, Protocol, Self, TypeAlias, TypeVar

from graphc.ir.collectives import Collective, CollectiveKind
from graphc.ir.placement import Home, Partial, R, ReduceOp, Split
from graphc.runtime.transports.processes import Processes
from graphc.support.dataclass import dataclass

T = TypeVar("T")
Array: TypeAlias = Any  # a NumPy array, or an array of the transport's own device
Shape: TypeAlias = tuple[int, ...]
Group: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of dim `dim` that the members of a group have: (offset, length), by position.

    size: the length of the dim in the result, with its padding. Several members may have one part.
    """

    dim: int
    spans: tuple[tuple[int, int], ...]
    size: int


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """A collective of a group: what all its members must agree on.

    before: if the value is split, what each member's x holds of it
    after:  if the result is split, what each member gets of it
    owners: if the value is owned, the one rank that has it; if the result is, the ranks that get it
    leaves: for a sum over leaves (graphc.ir.leaf_tree), `each` and `present`: position i has leaves
            i * each to (i + 1) * each - 1, of which those from `present` on are absent; at least
            one is present. Row k of its x is the k-th piece that its leaves make, rows past the
            last one are not read. The order is that of the tree over all leaves, whatever `each` is
    where:  a node, a source line: for reports
    """

    collective: Collective
    group: Group
    before: Parts | None = None
    after: Parts | None = None
    owners: Group = ()
    leaves: tuple[int, int] | None = None
    where: str = field(default="", compare=False, repr=False, kw_only=True)

    @property
    def kind(self) -> CollectiveKind:
        return self.collective.kind

    @property
    def reduce_op(self) -> ReduceOp:
        """How it adds up (or takes the largest); only of calls that do."""
        source = self.collective.source
        assert isinstance(source, Partial), f"{self} adds nothing up"
        return source.op

    def result(self, shape: Shape) -> Shape:
        """The shape of the result for an x of `shape`; asserts that the call fits it."""
        assert set(self.owners) <= set(self.group), f"{self}: an owner is outside the group"
        if self.leaves is not None:
            each, present = self.leaves
            assert 0 < present <= each * len(self.group), f"{self} has no such leaves"
            shape = shape[1:]
        before, after = self.before, self.after
        if before is not None and after is not None:
            assert before.dim != after.dim, f"{self} splits the dim that it joins"
        if before is not None:
            self._check(before, shape[before.dim], before.size)
            shape = _resized(shape, before)
        if after is not None:
            self._check(after, after.size, shape[after.dim])
            shape = _resized(shape, after)
        return shape

    def _check(self, parts: Parts, shard: int, whole: int) -> None:
        fits = all(0 <= n <= shard and 0 <= start <= whole - n for start, n in parts.spans)
        assert fits and len(parts.spans) == len(self.group), (
            f"{self}: parts {parts.spans} do not fit shards of {shard} and a whole of {whole}"
        )

    def receives(self, rank: int) -> bool:
        """Whether this member gets a result."""
        if isinstance(self.collective.target, Home):
            return rank in self.owners
        return self.kind is not CollectiveKind.BARRIER

    def __str__(self) -> str:
        parts = (x for x in (self.before, self.after) if x is not None)
        words = [f", parts {x.spans} to {x.size} of dim {x.dim}" for x in parts]
        words += [f", owned by {self.owners}"] * bool(self.owners)
        words += [f", leaves {self.leaves}"] * (self.leaves is not None)
        return f"{self.collective} among {self.group}{''.join(words)}"


def _resized(shape: Shape, parts: Parts) -> Shape:
    return (*shape[: parts.dim], parts.size, *shape[parts.dim + 1 :])


class Primitives(ABC):
    """What a transport does: one method for each kind of collective.

    A new transport implements these, and a Communicator that calls `run`. Each method takes a call,
    x and out. These are what the transport makes of them: one rank's operand and result, or, where
    all arrays are in one memory, those of all members by position; out is None for a rank that
    receives nothing. A collective is described by data only: `call.collective` (states and order)
    and the fields of the call. Reductions are elementwise, in the dtype of x, and give every rank
    the same bits; their order is that of the collective: ADD_N is the transport's own fixed order;
    TREE is the balanced binary tree over positions: (0,1), (2,3), ... then pairs of pairs, a lone
    element moves up (over `call.leaves`: graphc.ir.leaf_tree.joins); ACCUMULATE is a running sum
    from the first position to the last.
    """

    def run(self, call: CollectiveCall, x: Any, out: Any) -> None:
        """Do what a call says, by the method of its kind."""
        getattr(self, call.kind.value)(call, x, out)

    @abstractmethod
    def all_reduce(self, call: CollectiveCall, x: Any, out: Any) -> None:
        """P -> R: all get the sum (max, min); `out` may be x itself."""

    @abstractmethod
    def reduce(self, call: CollectiveCall, x: Any, out: Any) -> None:
        """P -> H: the owners get the sum (max, min); `out` may be x itself."""

    @abstractmethod
    def reduce_scatter(self, call: CollectiveCall, x: Any, out: Any) -> None:
        """P -> S(d): position i gets its part of the sum (max, min), then zeros."""

    @abstractmethod
    def broadcast(self, call: CollectiveCall, x: Any, out: Any) -> None:
        """H -> R: all get a copy of the owner's x; elsewhere only x's type matters."""

    @abstractmethod
    def all_gather(self, call: CollectiveCall, x: Any, out: Any) -> None:
        """S(d) -> R: all get the parts of all, each where `before.spans` says, then zeros."""

    @abstractmethod
    def all_to_all(self, call: CollectiveCall, x: Any, out: Any) -> None:
        """S(d) -> S(e): an all_gather along dim d, of which position i gets its part along e."""

    @abstractmethod
    def barrier(self, call: CollectiveCall, x: Any, out: Any) -> None:
        """Nobody continues before all have arrived. No x, no result."""


class PeerFailed(BaseException):
    """Raised in a rank whose peer has failed, to end it. `Session.run` raises the peer's error.

    It is not an Exception, so that code which handles errors of its own work does not catch it.
    """


class EndAgreed(BaseException):
    """Raised in all ranks of all processes at the same place: a process wants to end there, as
    `Processes.answer` says."""


class Handle(Protocol):
    """A call in progress. Until `wait` returns, x and out belong to the transport."""

    def wait(self) -> Array:
        """The result: `out` if one was given. A second wait returns the same."""
        ...


class Communicator(Protocol):
    """The exchange as one rank sees it. `out` arrays are C-contiguous for speed, else copied.

    here:   the ranks of this process, in a row
    common: where these are threads that wait for each other without end, i64 words that they all
            reach, by a cache line's beginning. They are 0 when a run begins, and the first of them
            is not when a rank has failed. None elsewhere.
    on_host: how many ranks there are on this host, which share its cores
    deadline: how many seconds a rank waits for others at most; None: forever
    """

    rank: int
    size: int
    here: range
    on_host: int
    common: Any = None
    deadline: float | None = None

    def start(self, call: CollectiveCall, x: Array = None, out: Array = None) -> Handle:
        """Begin a collective. Several may be in progress, if all ranks start them in one order."""
        ...

    def look(self) -> None:
        """Raise PeerFailed, or the error of another process, if one is known to have failed. For
        who waits for something else than a collective; never waits."""

    def barrier(self, group: Group) -> None:
        self.start(meeting_of(group)).wait()

    def meet_all(self, known: bool = False) -> None:
        """Wait until all ranks have come this far, as they do before the first write of a step.

        known: it is known already that they have, or will without fail. Raises PeerFailed if one
        never will, and EndAgreed if all processes end here.
        """
        if self.size > 1 and not known:
            self.barrier(tuple(range(self.size)))

    def gather_here(self, x: Array) -> Array:
        """The entries of the ranks of this process; x has one dim, and the same length on all."""
        return self.gather(tuple(self.here), x)

    def gather(self, group: Group, x: Array, where: str = "") -> Array:
        """The entries of a group's ranks, one after the other; x as in `gather_here`."""
        n = len(group)
        parts = Parts(0, tuple((k * len(x), len(x)) for k in range(n)), len(x) * n)
        call = CollectiveCall(Collective(Split(0), R), group, parts, where=where)
        return self.start(call, x).wait()


SUMS_OF_ALL = CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER


def hears_all(call: CollectiveCall, entries: int, size: int, here: int) -> bool:
    """Whether a rank that has the result knows of each of `size` ranks that it began the call.

    entries: those of the value; here: the ranks of each process, which begin a call together. What
    has no entry is not sent, and so nobody waits for it.
    """
    if call.kind not in SUMS_OF_ALL or call.group != tuple(range(size)):
        return False
    each, present = call.leaves or (1, size)
    parts = call.after.spans if call.after is not None else ((0, entries // size),)
    return entries > 0 and all(n for _, n in parts) and (size - here) * each < present


@lru_cache(maxsize=64)
def meeting_of(group: Group) -> CollectiveCall:
    """The call by which the ranks of a group wait for each other."""
    return CollectiveCall(Collective(R, R), group)


class TransportSession(Protocol):
    """`size` ranks that are ready to run, some of them here. A context manager: leaving it closes
    it.

    here: the ranks of this process, in a row; processes: those of the whole job. A rank has the
    same communicator in every run.
    """

    size: int
    here: range
    processes: Processes

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

    def processes(self) -> Processes:
        """Those of the job that this process belongs to; the first call joins it."""
        ...

    def open(
        self, size: int, *, deadline: float | None = None, groups: Iterable[Group] = ()
    ) -> TransportSession:
        """A session of `size` ranks; a rank waits at most `deadline` seconds (None: forever).

        groups: those that will exchange, in the same order in every process. Others may, too, but
        not several of one process at a time.
        """
        ...
