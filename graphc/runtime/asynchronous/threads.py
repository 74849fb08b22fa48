"""The roles as threads of one process: each has a mailbox, and nothing else is shared."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TypeAlias

from graphc.runtime.asynchronous.coordinator import Coordinator
from graphc.runtime.asynchronous.messages import COORDINATOR, Letters, Lost, Message
from graphc.runtime.asynchronous.server import Server, server_failed
from graphc.runtime.asynchronous.worker import Compute, Worker
from graphc.support.errors import GraphcError

POLL = 0.1  # seconds after which the coordinator looks whether it is to stop
PATIENCE = 3  # workers that may be lost, per worker, without a push in between


class WorkerLost(Exception):
    """Raised by a worker's computation: the worker is gone, and its batch goes to another one."""


@dataclass(frozen=True)
class _Failed:
    """A role ended with an error."""

    role: str
    error: BaseException


Mail: TypeAlias = "SimpleQueue[Message | _Failed | None]"
Hire: TypeAlias = Callable[[str], Compute]  # what the worker of a name computes with


class Threads:
    """One run of a coordinator, servers, and `workers` workers.

    hire:      called on a new worker's own thread
    interrupt: polled: whether to finish the work in progress, and stop
    """

    def __init__(
        self, coordinator: Coordinator, servers: list[Server], hire: Hire, workers: int,
        interrupt: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        self.coordinator, self.servers, self.hire = coordinator, servers, hire
        self.interrupt, self.size = interrupt, workers
        self.boxes: dict[str, Mail] = {COORDINATOR: SimpleQueue()}
        self.threads: list[threading.Thread] = []
        self.hired = self.lost = self.seen = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        """Run to the end. Raises the first error of a role, after the others have stopped.

        Raises G0524 if a server fails, G0526 if workers fail again and again.
        """
        try:
            for server in self.servers:
                self._start(server.name, lambda s=server: self._serve(s))  # type: ignore[misc]
            for _ in range(self.size):
                self._add_worker()
            while not self.coordinator.finished:
                self._turn()
        finally:
            for box in self.boxes.values():
                box.put(None)
            for thread in self.threads:
                thread.join()
        if self.error is not None:
            raise self.error

    # -- the coordinator, on the caller's thread ------------------------------------------------

    def _turn(self) -> None:
        with suppress(Empty):
            match self.boxes[COORDINATOR].get(timeout=POLL):
                case _Failed(role=role, error=error):
                    self._failed(role, error)
                case None:
                    pass
                case message:
                    self._post(self.coordinator.on_message(message))
        if not self.coordinator.closing and self.interrupt():
            self._post(self.coordinator.close())

    def _failed(self, role: str, error: BaseException) -> None:
        if any(role == server.name for server in self.servers):
            raise server_failed(role, error)
        if not isinstance(error, WorkerLost):
            self.error = self.error or error
            self._post(self.coordinator.abandon(role))
            return
        self.lost = self.lost + 1 if self.coordinator.version == self.seen else 1
        self.seen = self.coordinator.version
        if self.lost > PATIENCE * self.size:
            text = (
                f"{self.lost} workers failed without an update in between; the last "
                f"was {role}: {error}"
            )
            raise GraphcError("G0526", text)
        self._post(self.coordinator.on_message(Lost(role)))
        self._add_worker()

    def _post(self, letters: Letters) -> None:
        for to, message in letters:
            self.boxes[to].put(message)

    # -- threads --------------------------------------------------------------------------------

    def _start(self, name: str, work: Callable[[], None]) -> None:
        def main() -> None:
            try:
                work()
            except BaseException as error:
                self.boxes[COORDINATOR].put(_Failed(name, error))

        self.boxes[name] = SimpleQueue()
        thread = threading.Thread(target=main, name=f"graphc-{name}", daemon=True)
        self.threads.append(thread)
        thread.start()

    def _add_worker(self) -> None:
        name = f"worker.{self.hired}"
        self.hired += 1
        self._start(name, lambda: self._work(name))

    def _serve(self, server: Server) -> None:
        box = self.boxes[server.name]
        while (message := box.get()) is not None:
            assert not isinstance(message, _Failed)
            self._post(server.on_message(message))

    def _work(self, name: str) -> None:
        names = tuple(server.name for server in self.servers)
        worker, box = Worker(name, names, self.hire(name)), self.boxes[name]
        self._post(worker.start())
        while not worker.finished and (message := box.get()) is not None:
            assert not isinstance(message, _Failed)
            self._post(worker.on_message(message))
