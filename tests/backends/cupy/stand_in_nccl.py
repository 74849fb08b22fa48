"""What stands for `cupy.cuda.nccl`: it waits as NCCL does, and tells as little.

A call is one more piece of work of a stream. It is done when all ranks of the communicator have come
to theirs, and it is the same call; else all of them wait for ever. Calls of a group are one piece.
Where one thread has several ranks, a call outside of a group would wait for itself (`Misuse`).
"""

from __future__ import annotations

import ctypes
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from backends.cupy.stand_in import Misuse

if TYPE_CHECKING:
    from backends.cupy.stand_in_gpus import StandInMachine

TYPES = {  # as in nccl.h
    "NCCL_UINT8": (1, np.uint8), "NCCL_INT32": (2, np.int32), "NCCL_INT64": (4, np.int64),
    "NCCL_FLOAT16": (6, np.float16), "NCCL_FLOAT32": (7, np.float32),
    "NCCL_FLOAT64": (8, np.float64), "NCCL_BFLOAT16": (9, ml_dtypes.bfloat16),
}  # fmt: skip
DTYPES = {number: np.dtype(t) for number, t in TYPES.values()}
REDUCE: dict[int, np.ufunc] = {0: np.add, 2: np.maximum, 3: np.minimum}


class NcclError(RuntimeError):
    """As cupy's."""


@dataclass
class NcclWorld:
    """All communicators of all processes.

    joining: by unique id, who has come so far; log: of each call the GPU, the communicator, the
    method and what all ranks must agree on
    """

    lock: threading.Condition = field(default_factory=threading.Condition)
    joining: dict[bytes, Clique] = field(default_factory=dict)
    log: list[tuple[int, int, str, tuple[Any, ...]]] = field(default_factory=list)
    ids: int = 0

    def unique_id(self) -> bytes:
        with self.lock:
            self.ids += 1
            return bytes([self.ids, 239, *[0] * 126])


@dataclass(eq=False)
class Call:
    """One rank's part of a call. signature: what all ranks must agree on"""

    clique: Clique
    rank: int
    method: str
    send: int
    receive: int
    signature: tuple[Any, ...]
    done: bool = False


@dataclass(eq=False)
class Clique:
    """The ranks of one communicator. calls: of each rank, collectives that it has reached and that
    are not done; messages: (from, to, whether it is received) -> those that wait"""

    world: NcclWorld
    size: int
    devices: dict[int, str] = field(default_factory=dict)
    calls: dict[int, deque[Call]] = field(default_factory=lambda: defaultdict(deque))
    messages: dict[tuple[int, int, bool], deque[Call]] = field(
        default_factory=lambda: defaultdict(deque)
    )
    aborted: set[int] = field(default_factory=set)

    def reach(self, call: Call) -> None:
        """A rank's stream has come to a call."""
        if call.method in ("send", "recv"):
            peer = call.signature[-1]
            receives = call.method == "recv"
            pair = (peer, call.rank) if receives else (call.rank, peer)
            self.messages[(*pair, receives)].append(call)
            self._deliver(*pair)
            return
        self.calls[call.rank].append(call)
        if len(self.calls) == self.size and all(self.calls.values()):
            heads = [self.calls[k][0] for k in range(self.size)]
            if len({(h.method, h.signature) for h in heads}) == 1:
                do(heads)
                for queue in self.calls.values():
                    queue.popleft().done = True

    def _deliver(self, start: int, to: int) -> None:
        sent, wanted = (self.messages[start, to, receives] for receives in (False, True))
        while sent and wanted and sent[0].signature[:-1] == wanted[0].signature[:-1]:
            s, r = sent.popleft(), wanted.popleft()
            count, dtype = s.signature[:2]
            ctypes.memmove(r.receive, s.send, count * DTYPES[dtype].itemsize)
            s.done = r.done = True


def memory(address: int, count: int, dtype: int) -> Any:
    size = count * DTYPES[dtype].itemsize
    kind: Any = ctypes.c_uint8 * size
    return np.frombuffer(kind.from_address(address), np.uint8).view(DTYPES[dtype])


def do(calls: list[Call]) -> None:
    """A collective that all ranks have reached."""
    count, dtype, *rest = calls[0].signature
    n = len(calls)
    whole = count * n if calls[0].method == "reduceScatter" else count
    xs = [memory(c.send, whole, dtype).copy() for c in calls]
    match calls[0].method:
        case "broadcast":
            totals = [xs[rest[0]]] * n
        case "allGather":
            totals = [np.concatenate(xs)] * n
        case method:
            total = xs[-1]  # an order of NCCL's own
            for x in xs[:-1][::-1]:
                total = REDUCE[rest[0]](total, x)
            totals = [total] * n
            if method == "reduceScatter":
                totals = [total[k * count : (k + 1) * count] for k in range(n)]
            elif method == "reduce":
                totals = [total if k == rest[1] else None for k in range(n)]
    for call, value in zip(calls, totals, strict=True):
        if value is not None:
            memory(call.receive, value.size, dtype)[:] = value


class Group(threading.local):
    """The calls of a group, of this thread. depth: how many groups are open"""

    def __init__(self) -> None:
        self.depth, self.calls = 0, list[tuple[Any, Call]]()


class Communicator:
    """As cupy's NcclCommunicator. shared: whether one thread has all its ranks"""

    def __init__(
        self, machine: StandInMachine, group: Group, clique: Clique, rank: int, shared: bool
    ) -> None:  # fmt: skip
        self._machine, self._group, self.clique, self.rank = machine, group, clique, rank
        self._number, self._shared, self._pending = machine.current, shared, list[Call]()
        self.ended = False

    def allReduce(self, send: int, recv: int, count: int, dtype: int, op: int, s: int) -> None:
        self._given("allReduce", send, recv, (count, dtype, op), s)

    def reduce(
        self, send: int, recv: int, count: int, dtype: int, op: int, root: int, stream: int
    ) -> None:
        self._given("reduce", send, recv, (count, dtype, op, root), stream)

    def reduceScatter(
        self, send: int, recv: int, count: int, dtype: int, op: int, stream: int
    ) -> None:
        self._given("reduceScatter", send, recv, (count, dtype, op), stream)

    def allGather(self, send: int, recv: int, count: int, dtype: int, stream: int) -> None:
        self._given("allGather", send, recv, (count, dtype), stream)

    def broadcast(
        self, send: int, recv: int, count: int, dtype: int, root: int, stream: int
    ) -> None:
        self._given("broadcast", send, recv, (count, dtype, root), stream)

    def send(self, at: int, count: int, dtype: int, peer: int, stream: int) -> None:
        self._given("send", at, 0, (count, dtype, peer), stream)

    def recv(self, at: int, count: int, dtype: int, peer: int, stream: int) -> None:
        self._given("recv", 0, at, (count, dtype, peer), stream)

    def _given(
        self, method: str, send: int, recv: int, signature: tuple[Any, ...], ptr: int
    ) -> None:  # fmt: skip
        if self.ended:
            raise Misuse("a communicator that has ended is called")
        stream = self._machine.streams[ptr]
        if stream.number != self._number:
            raise Misuse("NCCL_ERROR_INVALID_ARGUMENT: a stream of another GPU")
        if not self._group.depth and (self._shared or method in ("send", "recv")):
            raise Misuse(f"{method} outside of a group waits for another call of this thread")
        call = Call(self.clique, self.rank, method, send, recv, signature)
        self._check_memory(call)
        self._pending.append(call)
        world = self.clique.world
        with world.lock:
            gpu = self._machine.identity + self._number
            world.log.append((gpu, id(self.clique), method, signature))
        if self._group.depth:
            self._group.calls.append((stream, call))
        else:
            give(stream, [call])

    def _check_memory(self, call: Call) -> None:
        gpu, n = self._machine.gpus[self._number], self.clique.size
        count, dtype = call.signature[:2]
        size = count * DTYPES[dtype].itemsize
        sent = size * (n if call.method == "reduceScatter" else 1)
        received = size * (n if call.method == "allGather" else 1)
        for at, bytes_of in ((call.send, sent), (call.receive, received)):
            if at:
                gpu.check(at, bytes_of)

    def check_async_error(self) -> None:
        if self.clique.aborted - {self.rank}:
            raise NcclError("NCCL_ERROR_UNHANDLED_CUDA_ERROR: a remote process exited")

    def abort(self) -> None:
        with self.clique.world.lock:
            self.ended = True
            for call in self._pending:
                call.done = True
            self.clique.aborted.add(self.rank)

    def destroy(self) -> None:
        if not self.ended and any(not call.done for call in self._pending):
            raise Misuse("ncclCommDestroy waits for calls that can't end")
        self.ended = True


def give(stream: Any, calls: list[Call]) -> None:
    """One piece of work of a stream: calls that are done together."""
    reached = False

    def ready() -> bool:
        nonlocal reached
        world = calls[0].clique.world
        with world.lock:
            if not reached:
                reached = True
                for call in calls:
                    call.clique.reach(call)
            return all(call.done for call in calls)

    def give_it() -> None:
        stream.give_when(ready, lambda: None)

    machine = stream.machine
    given = machine.pieces[stream.number] = machine.pieces.get(stream.number, -1) + 1
    if machine.swap == (stream.number, given):
        machine.held = give_it  # a fault: it comes behind the next one
        return
    give_it()
    if machine.swap == (stream.number, given - 1):
        machine.held()


def nccl_of(machine: StandInMachine) -> Any:
    """The module, as a process sees it."""
    group, world = Group(), machine.world

    def group_start() -> None:
        group.depth += 1

    def group_end() -> None:
        group.depth -= 1
        if group.depth == 0:
            given: dict[Any, list[Call]] = defaultdict(list)
            for stream, call in group.calls:
                given[stream.ptr].append(call)
            group.calls.clear()
            for ptr, calls in given.items():
                give(machine.streams[ptr], calls)

    def join(size: int, unique: bytes, rank: int) -> Communicator:
        if not isinstance(unique, bytes):
            raise TypeError("Argument 'commId' has incorrect type")
        assert len(unique) == 128
        device = machine.runtime.deviceGetPCIBusId(machine.current)
        with world.lock:
            clique = world.joining.setdefault(unique, Clique(world, size))
            if device in clique.devices.values():
                raise NcclError("NCCL_ERROR_INVALID_USAGE: Duplicate GPU detected")
            clique.devices[rank] = device
            world.lock.notify_all()
            world.lock.wait_for(lambda: len(clique.devices) == size)
        return Communicator(machine, group, clique, rank, shared=False)

    def init_all(devices: list[int]) -> list[Communicator]:
        clique, made = Clique(world, len(devices)), []
        for rank, number in enumerate(devices):
            with machine.Device(number):
                made.append(Communicator(machine, group, clique, rank, shared=True))
        return made

    make: Callable[..., Any] = join
    namespace: Any = SimpleNamespace(
        available=True, NcclError=NcclError, groupStart=group_start, groupEnd=group_end,
        get_unique_id=world.unique_id, NCCL_SUM=0, NCCL_PROD=1, NCCL_MAX=2, NCCL_MIN=3,
        **{name: number for name, (number, _) in TYPES.items()},
    )  # fmt: skip
    make.initAll = init_all  # type: ignore[attr-defined]
    namespace.NcclCommunicator = make
    return namespace
