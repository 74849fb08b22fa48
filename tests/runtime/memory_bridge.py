"""Processes of a job, played by threads of one: they share nothing but what goes over a bridge."""

from __future__ import annotations

import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from graphc.runtime.transports.bridge import Repeated
from graphc.runtime.transports.job_processes import JobProcesses
from graphc.runtime.transports.process_session import ProcessSession


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
            self.sent += x.nbytes

    def take(self, key: Any) -> Any:
        with self.lock:
            return self.letters.pop(key, None)


class MemoryChannel:
    """Letters between threads."""

    def __init__(self, bridge: MemoryBridge, group: tuple[int, ...], members: Any) -> None:
        self.members, self._bridge, self._group = tuple(members), bridge, group
        self._calls = [0, 0]

    def exchange(self, sends: Any, receives: Any, second: bool = False) -> Delivery:
        assert len(sends) == len(receives) == len(self.members)
        self._calls[second] += 1
        b = self._bridge
        own = self.members.index(b.index)
        assert sends[own] is receives[own] is None, "a process sends nothing to itself"
        where = b.epoch, self._group, (second, self._calls[second])
        for q, x in zip(self.members, sends, strict=True):
            if x is not None and x.size:
                b.hub.put((*where, b.index, q), x)
        pairs = zip(self.members, receives, strict=True)
        wanted = {(*where, q, b.index): x for q, x in pairs if x is not None and x.size}
        return Delivery(b.hub, wanted)

    def prepared(self, sends: Any, receives: Any) -> Repeated:
        return Repeated(self, sends, receives)


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


class MemoryBridge:
    def __init__(self, hub: Hub, index: int, shares_memory: bool = True) -> None:
        self.hub, self.index, self.count, self.on_host = hub, index, hub.count, hub.count
        self.failed, self.epoch, self.hosts = False, 0, 1
        self.shares_memory, self.crowded = shares_memory, set[Any]()
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

    def __init__(
        self, size: int, count: int, deadline: float | None = None, shares_memory: bool = True
    ) -> None:
        self.size, self.each, hub = size, size // count, Hub(count)
        self.pool = ThreadPoolExecutor(count)
        bridges = [MemoryBridge(hub, k, shares_memory) for k in range(count)]
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
