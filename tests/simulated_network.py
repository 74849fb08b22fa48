"""A simulator of asynchronous runs: virtual time, no threads, everything from one seed.

It is a driver of the same roles, and treats their messages as a bad network and bad machines would:
it delays them, so that they overtake each other, drops and duplicates them, kills workers and
servers at any moment, and takes slow workers for dead. A server that was killed has lost its
memory, and comes back from its journal.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import field
from functools import partial
from typing import Any

from graphc.runtime.asynchronous.coordinator import Coordinator, RecordedPush
from graphc.runtime.asynchronous.drivers import Conductor, Ended, RoleLost
from graphc.runtime.asynchronous.journal import Record, ServerState
from graphc.runtime.asynchronous.messages import COORDINATOR, Letters, Message, Recovered
from graphc.runtime.asynchronous.server import Server, ServerVariables
from graphc.runtime.asynchronous.worker import Compute, Parts, Worker
from graphc.support.dataclass import dataclass

RETRY = 5.0  # time after which a role asks again
NEVER = 1 << 40  # roles that may be lost


@dataclass(frozen=True)
class Weather:
    """The disturbances of a run.

    seed:    of everything that is random
    delay:   the longest time that a message takes
    drop:    the share of messages that are lost; twice: the share that arrive twice
    deaths:  the share of batches during which the worker dies; suspected: the share during which it
             is wrongly taken for dead
    slow:    how many times longer the first worker computes
    kills:   the share of messages at which a server is killed
    """

    seed: int = 0
    delay: float = 1.0
    drop: float = 0.0
    twice: float = 0.0
    deaths: float = 0.0
    suspected: float = 0.0
    slow: float = 1.0
    kills: float = 0.0


@dataclass
class Outcome:
    """A finished run: what was applied, when, and how long everything took."""

    entries: list[RecordedPush] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    time: float = 0.0
    workers: int = 0  # how many there were, with those that took a lost one's place
    kills: int = 0  # of servers
    snapshots: dict[int, Mapping[str, Any]] = field(default_factory=dict)  # by version
    stuck: bool = False  # it came to no end


class _Killed(Exception):
    """The server that was just running is dead."""


class _OutOfTime(Exception):
    """The run has taken too long."""


class MemoryJournal:
    """A journal that outlives its server, in memory: copies, as what workers push lies in their
    memory for a while. It may kill the server that writes.

    fuse: "before" kills it before the next record is there, "after" when it is; "" does not
    """

    def __init__(self, most: int = 5) -> None:
        self.most, self.fuse = most, ""
        self.state: ServerState | None = None
        self.records: list[Record] = []

    @property
    def full(self) -> bool:
        return len(self.records) > self.most

    def read(self) -> tuple[ServerState, list[Record]] | None:
        return None if self.state is None else (self.state, list(self.records))

    def begin(self, state: ServerState) -> None:
        self.state, self.records = deepcopy(state), []

    def write(self, record: Record) -> None:
        fuse, self.fuse = self.fuse, ""
        if fuse != "before":
            self.records.append(deepcopy(record))
        if fuse:
            raise _Killed


@dataclass
class Simulation:
    """One run; a driver.

    stores:  the variables of the servers; compute: what a worker does with a batch
    batches: the number of batches; workers: how many compute at a time
    """

    stores: Sequence[ServerVariables]
    compute: Compute
    batches: int
    workers: int
    staleness: int | None
    weather: Weather = Weather()
    limit: float = 1e5  # time after which a run is stuck
    retry: float = RETRY

    def __post_init__(self) -> None:
        self.random = random.Random(self.weather.seed)
        self.time, self.count = 0.0, 0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.happened: deque[Message | Ended] = deque()  # of which the conductor has not heard yet
        self.outcome = Outcome()
        self.dead: set[str] = set()
        names = tuple(f"server.{i}" for i in range(len(self.stores)))
        self.homes = dict(zip(names, self.stores, strict=True))
        self.journals = {name: MemoryJournal() for name in names}
        self.servers: dict[str, Server] = {}  # those that are not dead
        self.alive: dict[str, Worker] = {}
        self.coordinator = Coordinator(
            names, self.staleness, lambda i: i < self.batches, self._note, self._snapshot
        )

    def run(self) -> Outcome:
        """The whole run, to its end or to the time limit."""
        self._at(RETRY, self._remind)
        conductor = Conductor(self.coordinator, self, self.workers, patience=NEVER)
        try:
            conductor.run()
        except _OutOfTime:
            self.outcome.stuck = True
        self.outcome.time, self.outcome.workers = self.time, conductor.hired
        return self.outcome

    def _note(self, entry: RecordedPush, results: Mapping[str, Any]) -> None:
        self.outcome.entries.append(entry)
        self.outcome.times.append(self.time)

    def _snapshot(self) -> Callable[[Mapping[str, Any]], None] | None:
        """A snapshot after every third push."""
        version = len(self.outcome.entries)
        return partial(self.outcome.snapshots.__setitem__, version) if version % 3 == 0 else None

    # -- the driver -----------------------------------------------------------------------------

    def now(self) -> float:
        return self.time

    def start_server(self, name: str, applied: int) -> None:
        server = Server.journaled(name, self.homes[name], self.journals[name], applied)
        self.servers[name] = server
        self.send([(COORDINATOR, Recovered(name))])

    def start_worker(self, name: str) -> None:
        def compute(batch: int, values: Mapping[str, Any]) -> tuple[Parts, Mapping[str, Any]]:
            parts, results = self.compute(batch, values)
            return parts, dict(results)  # a new one each time: so it is seen that it computed

        self.alive[name] = Worker(name, tuple(self.homes), compute)
        self.send(self.alive[name].start())

    def send(self, letters: Letters, after: float = 0.0) -> None:
        for to, message in letters:
            copies = 1 + (self.random.random() < self.weather.twice)
            for _ in range(copies):
                if self.random.random() >= self.weather.drop:
                    wait = after + self.random.random() * self.weather.delay
                    self._at(self.time + wait, lambda to=to, m=message: self._deliver(to, m))  # type: ignore[misc]

    def next(self) -> Message | Ended | None:
        if self.time >= self.limit:
            raise _OutOfTime
        until = self.time + RETRY
        while not self.happened and self.events and self.events[0][0] <= until:
            self.time, _, event = heapq.heappop(self.events)
            event()
        if self.happened:
            return self.happened.popleft()
        self.time = until
        return None

    def settled(self) -> AbstractContextManager[None]:
        """Servers do something inside of `next` only."""
        return nullcontext()

    def finish(self) -> Ended | None:
        """The dead are started again: the servers' variables are to be looked at."""
        dead = [name for name in self.homes if name not in self.servers]
        return Ended(dead[0], RoleLost("it was killed")) if dead else None

    def close(self) -> None:
        """There is nothing to end."""

    # -- time -----------------------------------------------------------------------------------

    def _at(self, time: float, event: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.events, (time, self.count, event))

    def _remind(self) -> None:
        """All workers ask again for answers that did not arrive."""
        for name, worker in list(self.alive.items()):
            if name not in self.dead:
                self.send(worker.on_timer())
        self._at(self.time + RETRY, self._remind)

    # -- messages -------------------------------------------------------------------------------

    def _deliver(self, to: str, message: Message) -> None:
        if to == COORDINATOR:
            self.happened.append(message)
        elif to in self.servers:
            self._serve(self.servers[to], message)
        elif to in self.alive and to not in self.dead:
            self._work(self.alive[to], message)

    def _serve(self, server: Server, message: Message) -> None:
        """Let a server act on a message; it may be killed before that, in the middle, or behind."""
        if self.random.random() >= self.weather.kills:
            return self.send(server.on_message(message))
        moment = self.random.choice(["", "before", "after", "answering"])
        letters: Letters = []
        self.journals[server.name].fuse = moment if moment != "answering" else ""
        try:
            if moment:
                letters = server.on_message(message)
        except _Killed:
            pass
        self.journals[server.name].fuse = ""
        self.send(letters[: self.random.randrange(len(letters) + 1)])
        return self._kill(server.name)

    def _kill(self, name: str) -> None:
        del self.servers[name]
        self.homes[name].load({})  # all that it had in memory
        self.outcome.kills += 1
        ended = Ended(name, RoleLost("it was killed"))
        noticed = self.time + self.random.random() * 6 * self.weather.delay
        self._at(noticed, lambda: self.happened.append(ended))

    def _work(self, worker: Worker, message: Message) -> None:
        before = worker.results
        letters = worker.on_message(message)
        if worker.results is before:
            return self.send(letters)
        own = self.weather.slow if worker.name == "worker.0" else 1.0
        seconds = own * (0.5 + self.random.random())
        if self.random.random() < self.weather.deaths:
            return self._lose(worker, letters, seconds)
        return self.send(letters, seconds)

    def _lose(self, worker: Worker, letters: Letters, seconds: float) -> None:
        """The worker dies while it sends messages, or is wrongly taken for dead."""
        if self.random.random() < self.weather.suspected:
            self.send(letters, seconds)
        else:
            self.dead.add(worker.name)
            self.send(letters[: self.random.randrange(len(letters) + 1)], seconds)
        ended = Ended(worker.name, RoleLost("it was killed, or is slow"))
        noticed = self.time + seconds + self.random.random() * 6 * self.weather.delay
        self._at(noticed, lambda: self.happened.append(ended))
