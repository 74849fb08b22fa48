"""A process's connection to the other ones of an MPI job."""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from graphc.ir.placement import ReduceOp
from graphc.runtime.transports.bridge import as_bytes
from graphc.runtime.transports.process_session import ENDED, Watched
from graphc.runtime.transports.transport import Group

Array: TypeAlias = NDArray[Any]
OPS: dict[ReduceOp, MPI.Op] = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}
NEWS = 1  # the tag of messages about failures


class MpiRequest:
    """A nonblocking operation of MPI; it holds on to the arrays of the operation."""

    def __init__(self, request: MPI.Request, *arrays: object) -> None:
        self._request, self._arrays = request, arrays

    def done(self) -> bool:
        return bool(self._request.Test())


class MpiChannel:
    """Two communicators of the processes that have members of a group, for exchanges and for
    second ones."""

    def __init__(self, members: Sequence[int], comms: Sequence[MPI.Intracomm]) -> None:
        self.members, self._comms = tuple(members), tuple(comms)

    @classmethod
    def of_group(cls, world: MPI.Intracomm, group: Group, members: Sequence[int]) -> MpiChannel:
        """A channel of some processes; waits for them."""
        processes = world.group.Incl(list(members))
        # Threads may make channels of different groups at a time: these have different tags.
        tag = hash(group) & 0x3FFF
        return cls(members, [world.Create_group(processes, 2 * tag + k) for k in range(2)])

    def exchange(
        self, sends: Sequence[Array], receives: Sequence[Array], second: bool = False
    ) -> MpiRequest:
        sent, (counts, starts) = _joined(sends)
        size = sum(x.nbytes for x in receives)
        got = np.empty(size, np.uint8)
        into = np.array([x.nbytes for x in receives], np.int64)
        begins = np.concatenate([[0], np.cumsum(into)[:-1]])
        request = self._comms[second].Ialltoallv(
            [sent, counts, starts, MPI.BYTE], [got, into, begins, MPI.BYTE]
        )
        return Scattered(request, sent, got, receives)

    def all_reduce(self, x: Array, op: ReduceOp) -> MpiRequest | None:
        if x.dtype.kind not in "fiu" or x.dtype.itemsize < 4:  # MPI has no halves
            return None
        return MpiRequest(self._comms[0].Iallreduce(MPI.IN_PLACE, x, OPS[op]), x)


class Scattered(MpiRequest):
    """An exchange, whose received bytes go to several arrays at its end."""

    def __init__(
        self, request: MPI.Request, sent: Array, got: Array, receives: Sequence[Array]
    ) -> None:
        super().__init__(request, sent)
        self._got, self._receives = got, receives

    def done(self) -> bool:
        if not super().done():
            return False
        start = 0
        for x in self._receives:
            as_bytes(x)[...] = self._got[start : start + x.nbytes]
            start += x.nbytes
        self._receives = ()
        return True


def _joined(arrays: Sequence[Array]) -> tuple[Array, tuple[Array, Array]]:
    """Arrays as one of bytes, and where in it each is. An array that occurs twice is there once."""
    where, parts, size = dict[int, int](), list[Array](), 0
    for x in arrays:
        if id(x) not in where:
            where[id(x)] = size
            parts.append(as_bytes(x))
            size += x.nbytes
    sent = parts[0] if len(parts) == 1 else np.concatenate(parts)
    counts = np.array([x.nbytes for x in arrays], np.int64)
    return sent, (counts, np.array([where[id(x)] for x in arrays], np.int64))


class MpiBridge:
    """The processes of MPI.COMM_WORLD."""

    def __init__(self) -> None:
        world = MPI.COMM_WORLD
        self.index, self.count, self.failed = world.rank, world.size, False
        host = world.Split_type(MPI.COMM_TYPE_SHARED)
        self.on_host = host.size
        self.hosts = world.allreduce(int(host.rank == 0))
        host.Free()
        self._news = world.Dup()
        self._epoch = 0
        self._told: list[tuple[MPI.Request, bytes]] = []  # until they are sent
        self._failures: list[tuple[int, int, str]] = []  # epoch, process, words
        self._channels: dict[Group, MpiChannel] = {}
        self._world = [world.Dup(), world.Dup()]
        self._connect()
        if self.count > 1:
            atexit.register(self._end)  # before MPI ends, which waits for all

    def channel(self, group: Group, members: Sequence[int]) -> MpiChannel:
        if group not in self._channels:
            self._channels[group] = MpiChannel.of_group(self._world[0], group, members)
        return self._channels[group]

    def fail(self, words: str) -> None:
        self.failed = True
        self._tell(words)

    def _tell(self, words: str) -> None:
        data = f"{self._epoch} {words}".encode()
        for other in range(self.count):
            if other != self.index:
                self._told.append((self._news.Isend([data, MPI.BYTE], other, NEWS), data))

    def failure(self) -> tuple[int, str] | None:
        status = MPI.Status()
        while self._news.Iprobe(MPI.ANY_SOURCE, NEWS, status):
            data = bytearray(status.Get_count(MPI.BYTE))
            self._news.Recv([data, MPI.BYTE], status.Get_source(), NEWS)
            epoch, _, words = data.decode(errors="replace").partition(" ")
            self._failures.append((int(epoch), status.Get_source(), words))
        now = [(k, words) for at, k, words in self._failures if at == self._epoch or words == ENDED]
        return now[0] if now else None

    def renew(self, patience: float | None = None) -> None:
        # What was in progress never ends: its communicators are left to MPI.
        self._channels.clear()
        self._epoch, self.failed = self._epoch + 1, False
        pairs = [MPI.COMM_WORLD.Idup() for _ in range(2)]
        for _, request in pairs:
            Watched(MpiRequest(request), self).wait(patience)
        self._world = [comm for comm, _ in pairs]
        self._connect()

    def _connect(self) -> None:
        """The channel of all processes is there from the beginning: nobody waits to make it."""
        self._channels[()] = MpiChannel(range(self.count), self._world)

    def _end(self) -> None:
        """This process exits: nobody need wait for it any more."""
        self._tell(ENDED)
        for request, _ in self._told:
            request.Test()
