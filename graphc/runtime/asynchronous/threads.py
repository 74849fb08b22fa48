"""The roles in one process: each worker is a thread with a mailbox, and so is the coordinator.

A server only answers, so it needs no thread: whoever sends to it runs it. That saves waking a
thread for each message, and an update takes no core from a worker that computes: it is run for a
worker that waits. What the coordinator sends to servers ahead of a worker's next work is run by
that worker: its gradients are in the cache of its core, and the coordinator is free for others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from queue import Empty, SimpleQueue
from typing import TypeAlias

from graphc.runtime.asynchronous.drivers import Driver, DriverPlugin, Ended, Roles
from graphc.runtime.asynchronous.messages import COORDINATOR, Letters, Message
from graphc.runtime.asynchronous.server import Server
from graphc.runtime.asynchronous.worker import Worker
from graphc.support.errors import GraphcError

POLL = 0.1  # seconds after which the coordinator looks whether it is to stop
RETRY = 5.0  # seconds after which a role asks again: no message is lost here

Mail: TypeAlias = "SimpleQueue[Message | Ended | _Errand | None]"


class _PassiveServer:
    """A server that runs on the threads that send to it, one at a time.

    Each waits until it can run the server with its own message. Were messages left to the thread
    that is running it, a worker that has its variables would have to apply the pushes of others
    before it computes: all workers would then compute at the same time, and wait at the same time.
    """

    def __init__(self, server: Server, send: Callable[[Letters], None]) -> None:
        self._server, self._send = server, send
        self.running, self._failed = threading.RLock(), False

    def take(self, message: Message) -> None:
        """Run the server with a message, unless it has failed."""
        with self.running:
            if self._failed:
                return
            self._failed = True
            self._send(self._server.on_message(message))
            self._failed = False


class _Errand:
    """Letters that are delivered once, by whoever comes first; others wait until they are."""

    def __init__(self, letters: Letters, send: Callable[[Letters], None]) -> None:
        self._letters, self._send = letters, send
        self._running = threading.RLock()  # as a signal's handler may come here, too

    def run(self) -> None:
        with self._running:
            letters, self._letters = self._letters, []
            self._send(letters)


class Threads:
    """The driver of one run. worker: called on the new worker's own thread."""

    retry = RETRY

    def __init__(self, server: Callable[[str], Server], worker: Callable[[str], Worker]) -> None:
        self.server, self.worker = server, worker
        self.boxes: dict[str, Mail] = {COORDINATOR: SimpleQueue()}
        self.answering: set[str] = set()  # the names of all servers
        self.servers: dict[str, _PassiveServer] = {}  # those that have not failed
        self.threads: list[threading.Thread] = []
        self.errands: dict[_Errand, None] = {}  # that are not done, in their order

    def now(self) -> float:
        return time.monotonic()

    def start_server(self, name: str, applied: int) -> None:
        self.answering.add(name)
        with self._reporting(name):
            self.servers[name] = _PassiveServer(self.server(name), self.send)

    def start_worker(self, name: str) -> None:
        self._start(name, lambda: self._work(self.worker(name)))

    def send(self, letters: Letters) -> None:
        before: Letters = []  # to servers
        for to, message in letters:
            if to in self.answering:
                before.append((to, message))
                continue
            if before and to != COORDINATOR:
                self._let_do(to, before)
                before = []
            self.boxes[to].put(message)
        self._deliver(before)

    @contextmanager
    def settled(self) -> Iterator[None]:
        self._do_all()
        with ExitStack() as stack:
            for server in tuple(self.servers.values()):
                stack.enter_context(server.running)
            yield

    def next(self) -> Message | Ended | None:
        try:
            message = self.boxes[COORDINATOR].get(timeout=POLL)
        except Empty:
            return None
        assert not isinstance(message, _Errand)  # these are for workers
        return message

    def finish(self) -> None:
        """The servers' variables are at home already."""

    def close(self) -> None:
        for box in self.boxes.values():
            box.put(None)
        for thread in self.threads:
            thread.join()
        self._do_all()  # those of a worker that has failed: their pushes are counted

    # -- servers --------------------------------------------------------------------------------

    def _let_do(self, worker: str, letters: Letters) -> None:
        """Let a worker deliver letters to servers before it reads what else it is sent."""
        errand = _Errand(letters, self._deliver)
        self.errands[errand] = None
        self.boxes[worker].put(errand)

    def _do_all(self) -> None:
        for errand in tuple(self.errands):
            self._do(errand)

    def _do(self, errand: _Errand) -> None:
        errand.run()
        self.errands.pop(errand, None)

    def _deliver(self, letters: Letters) -> None:
        for to, message in letters:
            if (server := self.servers.get(to)) is not None:
                with self._reporting(to):
                    server.take(message)

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
            if isinstance(message, _Errand):
                self._do(message)
                continue
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
