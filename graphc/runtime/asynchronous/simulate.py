"""A simulator of asynchronous runs: virtual time, no threads, everything from one seed.

It runs the same roles as the threads do, and treats their messages as a bad network and bad
machines would: it delays them, so that they overtake each other, drops and duplicates them, kills
workers at any moment, and takes slow workers for dead.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphc.runtime.asynchronous.coordinator import Coordinator, RecordedPush
from graphc.runtime.asynchronous.messages import COORDINATOR, Letters, Lost, Message
from graphc.runtime.asynchronous.server import Server, ServerVariables
from graphc.runtime.asynchronous.worker import Compute, Parts, Worker

RETRY = 5.0  # time after which a role asks again


@dataclass(frozen=True)
class Weather:
    """The disturbances of a run.

    seed:    of everything that is random
    delay:   the longest time that a message takes
    drop:    the share of messages that are lost; twice: the share that arrive twice
    deaths:  the share of batches during which the worker dies; suspected: the share during which it
             is wrongly taken for dead
    slow:    how many times longer the first worker computes
    """

    seed: int = 0
    delay: float = 1.0
    drop: float = 0.0
    twice: float = 0.0
    deaths: float = 0.0
    suspected: float = 0.0
    slow: float = 1.0


@dataclass
class Outcome:
    """A finished run: what was applied, when, and how long everything took."""

    entries: list[RecordedPush] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    time: float = 0.0
    workers: int = 0  # how many there were, with those that took a lost one's place
    stuck: bool = False  # it came to no end


@dataclass
class Simulation:
    """One run.

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

    def __post_init__(self) -> None:
        self.random = random.Random(self.weather.seed)
        self.now, self.count = 0.0, 0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.outcome = Outcome()
        self.dead: set[str] = set()
        names = tuple(f"server.{i}" for i in range(len(self.stores)))
        self.servers = {n: Server(n, s) for n, s in zip(names, self.stores, strict=True)}
        self.alive: dict[str, Worker] = {}
        self.coordinator = Coordinator(
            names, self.staleness, lambda i: i < self.batches, self._note
        )

    def run(self) -> Outcome:
        """The whole run, to its end or to the time limit."""
        for _ in range(self.workers):
            self._hire()
        self._at(RETRY, self._remind)
        while self.events and not self.coordinator.finished and self.now < self.limit:
            self.now, _, event = heapq.heappop(self.events)
            event()
        self.outcome.time = self.now
        self.outcome.stuck = not self.coordinator.finished
        return self.outcome

    def _note(self, entry: RecordedPush, results: Mapping[str, Any]) -> None:
        self.outcome.entries.append(entry)
        self.outcome.times.append(self.now)

    # -- time -----------------------------------------------------------------------------------

    def _at(self, time: float, event: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.events, (time, self.count, event))

    def _remind(self) -> None:
        """Everyone asks again for answers that did not arrive."""
        self._send(self.coordinator.on_timer())
        for name, worker in list(self.alive.items()):
            if name not in self.dead:
                self._send(worker.on_timer())
        self._at(self.now + RETRY, self._remind)

    # -- messages -------------------------------------------------------------------------------

    def _send(self, letters: Letters, after: float = 0.0) -> None:
        for to, message in letters:
            copies = 1 + (self.random.random() < self.weather.twice)
            for _ in range(copies):
                if self.random.random() >= self.weather.drop:
                    wait = after + self.random.random() * self.weather.delay
                    self._at(self.now + wait, lambda to=to, m=message: self._deliver(to, m))  # type: ignore[misc]

    def _deliver(self, to: str, message: Message) -> None:
        if to == COORDINATOR:
            self._send(self.coordinator.on_message(message))
        elif to in self.servers:
            self._send(self.servers[to].on_message(message))
        elif to in self.alive and to not in self.dead:
            self._work(self.alive[to], message)

    def _work(self, worker: Worker, message: Message) -> None:
        before = worker.results
        letters = worker.on_message(message)
        if worker.results is before:
            return self._send(letters)
        own = self.weather.slow if worker.name == "worker.0" else 1.0
        seconds = own * (0.5 + self.random.random())
        if self.random.random() < self.weather.deaths:
            return self._lose(worker, letters, seconds)
        return self._send(letters, seconds)

    def _lose(self, worker: Worker, letters: Letters, seconds: float) -> None:
        """The worker dies while it sends messages, or is wrongly taken for dead."""
        if self.random.random() < self.weather.suspected:
            self._send(letters, seconds)
        else:
            self.dead.add(worker.name)
            self._send(letters[: self.random.randrange(len(letters) + 1)], seconds)
        lost = Lost(worker.name)
        noticed = self.now + seconds + self.random.random() * 6 * self.weather.delay
        self._at(noticed, lambda: self._send(self.coordinator.on_message(lost)))
        self._at(noticed, self._hire)

    def _hire(self) -> None:
        name = f"worker.{self.outcome.workers}"
        self.outcome.workers += 1

        def compute(batch: int, values: Mapping[str, Any]) -> tuple[Parts, Mapping[str, Any]]:
            parts, results = self.compute(batch, values)
            return parts, dict(results)  # a new one each time: so it is seen that it computed

        self.alive[name] = Worker(name, tuple(self.servers), compute)
        self._send(self.alive[name].start())
