"""The roles as threads of one process: each has a mailbox, and nothing else is shared."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
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


class Threads:
    """The driver of one run. server, worker: called on the new role's own thread."""

    retry = RETRY

    def __init__(self, server: Callable[[str], Server], worker: Callable[[str], Worker]) -> None:
        self.server, self.worker = server, worker
        self.boxes: dict[str, Mail] = {COORDINATOR: SimpleQueue()}
        self.threads: list[threading.Thread] = []

    def now(self) -> float:
        return time.monotonic()

    def start_server(self, name: str, applied: int) -> None:
        self._start(name, lambda: self._serve(self.server(name)))

    def start_worker(self, name: str) -> None:
        self._start(name, lambda: self._work(self.worker(name)))

    def send(self, letters: Letters) -> None:
        for to, message in letters:
            self.boxes[to].put(message)

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

    def _start(self, name: str, work: Callable[[], None]) -> None:
        def main() -> None:
            try:
                work()
            except BaseException as error:
                self.boxes[COORDINATOR].put(Ended(name, error))

        self.boxes[name] = SimpleQueue()
        thread = threading.Thread(target=main, name=f"graphc-{name}", daemon=True)
        self.threads.append(thread)
        thread.start()

    def _serve(self, server: Server) -> None:
        box = self.boxes[server.name]
        while (message := box.get()) is not None:
            assert not isinstance(message, Ended)
            self.send(server.on_message(message))

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
