"""The roles in one process: each worker is a thread with a mailbox, and so is the coordinator.

A server only answers, so it needs no thread: whoever sends to it runs it. That saves waking a
thread for each message, and an update takes no core from a worker that computes: it is run for a
worker that waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TypeAlias

from graphc.runtime.asynchronous.drivers import Driver, DriverPlugin, Ended, Roles
from graphc.runtime.asynchronous.messages import COORDINATOR, Letters, Message
from graphc.runtime.asynchronous.server import Server
from graphc.runtime.asynchronous.worker import Worker
from graphc.support.errors import GraphcError

POLL = 0.1  # seconds after which the coordinator looks whether it is to stop
RETRY = 5.0  # seconds after which a role asks again: no message is lost here

Mail: TypeAlias = "SimpleQueue[Message | Ended | None]"


class _PassiveServer:
    """A server that runs on the threads that send to it, one at a time.

    Each waits until it can run the server with its own message. Were messages left to the thread
    that is running it, a worker that has its variables would have to apply the pushes of others
    before it computes: all workers would then compute at the same time, and wait at the same time.
    """

    def __init__(self, server: Server, send: Callable[[Letters], None]) -> None:
        self._server, self._send = server, send
        self._running, self._failed = threading.Lock(), False

    def take(self, message: Message) -> None:
        """Run the server with a message, unless it has failed."""
        with self._running:
            if self._failed:
                return
            self._failed = True
            self._send(self._server.on_message(message))
            self._failed = False


class Threads:
    """The driver of one run. worker: called on the new worker's own thread."""

    retry = RETRY

    def __init__(self, server: Callable[[str], Server], worker: Callable[[str], Worker]) -> None:
        self.server, self.worker = server, worker
        self.boxes: dict[str, Mail] = {COORDINATOR: SimpleQueue()}
        self.servers: dict[str, _PassiveServer] = {}
        self.threads: list[threading.Thread] = []

    def now(self) -> float:
        return time.monotonic()

    def start_server(self, name: str, applied: int) -> None:
        self.boxes[name] = SimpleQueue()  # of a server that has failed: nobody looks into it
        with self._reporting(name):
            self.servers[name] = _PassiveServer(self.server(name), self.send)

    def start_worker(self, name: str) -> None:
        self._start(name, lambda: self._work(self.worker(name)))

    def send(self, letters: Letters) -> None:
        for to, message in letters:
            if (server := self.servers.get(to)) is None:
                self.boxes[to].put(message)
                continue
            with self._reporting(to):
                server.take(message)

    def next(self) -> Message | Ended | None:
        try:
            return self.boxes[COORDINATOR].get(timeout=POLL)
        except Empty:
            return None

    def finish(self) -> None:
        """The servers' variables are at home already."""

    def close(self) -> None:
        for box in self.boxes.values():
            box.put(None)
        for thread in self.threads:
            thread.join()

    # -- threads --------------------------------------------------------------------------------

    @contextmanager
    def _reporting(self, name: str) -> Iterator[None]:
        """The end of a role by an error is told to the coordinator."""
        try:
            yield
        except BaseException as error:
            self.servers.pop(name, None)
            self.boxes[COORDINATOR].put(Ended(name, error))

    def _start(self, name: str, work: Callable[[], None]) -> None:
        def main() -> None:
            with self._reporting(name):
                work()

        self.boxes[name] = SimpleQueue()
        thread = threading.Thread(target=main, name=f"graphc-{name}", daemon=True)
        self.threads.append(thread)
        thread.start()

    def _work(self, worker: Worker) -> None:
        box = self.boxes[worker.name]
        self.send(worker.start())
        while not worker.finished:
            try:
                message = box.get(timeout=RETRY)
            except Empty:
                self.send(worker.on_timer())
                continue
            if message is None:
                return
            assert not isinstance(message, Ended)
            self.send(worker.on_message(message))


class ThreadsPlugin:
    """Runs all roles in the trainer's process."""

    name, remote = "threads", False

    def available(self) -> str | None:
        return None

    def at(self, address: str | None, journals: object) -> DriverPlugin:
        text = "threads run in this process: they have no address, and no journals"
        raise GraphcError("G0577", text, help="`graphc backends` lists other drivers")

    def start(self, roles: Roles) -> Driver:
        return Threads(roles.server, roles.worker)

    def close(self) -> None:
        """Nothing is shared by several runs."""


DRIVER = ThreadsPlugin()
