"""Processes of a job, played by threads of one: they share nothing but what goes over a bridge."""

from __future__ import annotations

import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import numpy as np

from graphc.runtime.transports.process_session import JobProcesses, ProcessSession

REDUCE = {"sum": np.add, "max": np.maximum, "min": np.minimum}


class Hub:
    """What lies between the processes."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.lock = threading.Lock()
        self.letters: dict[Any, Any] = {}
        self.failures: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
        self.sent = 0  # bytes between processes

    def put(self, key: Any, x: Any) -> None:
        with self.lock:
            self.letters[key] = x.copy()
            self.sent += x.nbytes * (key[3] != key[4])

    def take(self, key: Any) -> Any:
        with self.lock:
            return self.letters.pop(key, None)


class MemoryChannel:
    """Letters between threads; if `sums`, a sum of its own of f32 and f64, from the last member to
    the first, unlike any order of ours."""

    sums = False

    def __init__(self, bridge: MemoryBridge, group: tuple[int, ...], members: Any) -> None:
        self.members, self._bridge, self._group = tuple(members), bridge, group
        self._calls = [0, 0]

    def exchange(self, sends: Any, receives: Any, second: bool = False) -> Delivery:
        assert len(sends) == len(receives) == len(self.members)
        self._calls[second] += 1
        b = self._bridge
        where = b.epoch, self._group, (second, self._calls[second])
        for q, x in zip(self.members, sends, strict=True):
            b.hub.put((*where, b.index, q), x)
        wanted = {(*where, q, b.index): x for q, x in zip(self.members, receives, strict=True)}
        return Delivery(b.hub, wanted)

    def all_reduce(self, x: Any, op: str) -> Any:
        if not self.sums or x.dtype.kind != "f" or x.dtype.itemsize < 4:
            return None
        every = [np.empty_like(x) for _ in self.members]
        return Sum(self.exchange([x] * len(every), every), x, every, REDUCE[op])


class Delivery:
    def __init__(self, hub: Hub, wanted: dict[Any, Any]) -> None:
        self._hub, self._wanted = hub, wanted

    def done(self) -> bool:
        for key in tuple(self._wanted):
            if (found := self._hub.take(key)) is not None:
                into = self._wanted.pop(key)
                assert (found.dtype, found.size) == (into.dtype, into.size)
                into[...] = found.reshape(into.shape)
        return not self._wanted


class Sum:
    def __init__(self, request: Delivery, x: Any, every: Any, combine: Any) -> None:
        self._request, self._x, self._every, self._combine = request, x, every, combine

    def done(self) -> bool:
        if not self._request.done():
            return False
        self._x[...] = self._every[-1]
        for other in self._every[-2::-1]:
            self._combine(self._x, other, out=self._x)
        return True


class MemoryBridge:
    def __init__(self, hub: Hub, index: int) -> None:
        self.hub, self.index, self.count, self.on_host = hub, index, hub.count, hub.count
        self.failed, self.epoch, self.hosts = False, 0, 1
        self._channels: dict[Any, MemoryChannel] = {}

    def channel(self, group: tuple[int, ...], members: Any) -> MemoryChannel:
        if group not in self._channels:
            self._channels[group] = MemoryChannel(self, group, members)
        return self._channels[group]

    def fail(self, words: str) -> None:
        self.failed = True
        with self.hub.lock:
            for other in range(self.count):
                if other != self.index:
                    self.hub.failures[other].append((self.epoch, self.index, words))

    def failure(self) -> tuple[int, str] | None:
        with self.hub.lock:
            found = [x for x in self.hub.failures[self.index] if x[0] == self.epoch]
        return found[0][1:] if found else None

    def renew(self, patience: float | None = None) -> None:
        self.epoch, self.failed = self.epoch + 1, False
        self._channels.clear()


class Played:
    """A session of `size` ranks in `count` processes: `run` runs all of them, as one session."""

    def __init__(self, size: int, count: int, deadline: float | None = None) -> None:
        self.size, hub = size, Hub(count)
        self.pool = ThreadPoolExecutor(count)
        bridges = [MemoryBridge(hub, k) for k in range(count)]
        self.sessions = list(self.pool.map(lambda b: ProcessSession(size, b, deadline), bridges))

    def run(self, fn: Any) -> list[Any]:
        """The results of all ranks; the error of the first process that failed by itself."""
        jobs = [self.pool.submit(copy_context().run, s.run, fn) for s in self.sessions]
        errors = [job.exception() for job in jobs]
        if any(errors):
            own = [e for e in errors if e is not None and not hasattr(e, "process")]
            raise (own or [e for e in errors if e is not None])[0]
        return [x for job in jobs for x in job.result()]

    def close(self) -> None:
        for session in self.sessions:
            session.close()
        self.pool.shutdown()


class MemoryTransport:
    """The transport of process `index` of a job."""

    name = "memory"

    def __init__(self, hub: Hub, index: int) -> None:
        self.bridge = MemoryBridge(hub, index)

    def available(self) -> None:
        return None

    def processes(self) -> JobProcesses:
        return JobProcesses(self.bridge)

    def open(self, size: int, *, deadline: float | None = None, groups: Any = ()) -> ProcessSession:
        return ProcessSession(size, self.bridge, deadline, groups)
