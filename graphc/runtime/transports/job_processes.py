"""The processes of a job that a bridge connects."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.runtime.transports.bridge import Array, Bridge, Channel, ProcessFailed
from graphc.runtime.transports.processes import BatchesDiffer, differing
from graphc.runtime.transports.watched import Watched, in_words


class JobProcesses:
    """The processes of a job, over a bridge."""

    def __init__(self, bridge: Bridge) -> None:
        self.index, self.count = bridge.index, bridge.count
        self._bridge = bridge
        self._mutex = threading.Lock()
        self._asked: Question | None = None  # the last one
        self._answer = 0
        self._differ: BatchesDiffer | None = None  # what the last question found out

    @property
    def hosts(self) -> int:
        return self._bridge.hosts

    def all_gather(self, data: bytes, patience: float | None = None) -> list[bytes]:
        lengths = self._exchange(np.array([len(data)], np.int64), [1] * self.count, patience)
        each = [int(n[0]) for n in lengths]
        received = self._exchange(np.frombuffer(data, np.uint8), each, patience)
        return [x.tobytes() for x in received]

    def broadcast(self, data: bytes) -> bytes:
        return self.all_gather(data if self.index == 0 else b"")[0]

    def largest(self, number: int, size: int = 0) -> int:
        every = self._exchange(np.array([number, size], np.int64), [2] * self.count, None)
        if (error := differing([int(x[1]) for x in every])) is not None:
            raise error
        return max(int(x[0]) for x in every)

    def ask(self, number: int, size: int = 0) -> None:
        with self._mutex:
            if self._bridge.failed:
                self._bridge.renew()
            if self._asked is None or self._asked.channel is not self._channel:
                self._asked = Question(self._channel, self._bridge)
            self._asked.ask(number, size)
            self._answer, self._differ = 0, None

    def answer(self, take: bool = False) -> int:
        with self._mutex:
            asked = self._asked
            # Nobody answers what was asked before a failure.
            if asked is not None and asked.open and asked.channel is self._channel:
                self._answer = asked.answer()
                self._differ = differing(asked.sizes)
            if self._differ is not None:  # each thread that asks is told
                raise self._differ
            found = self._answer
            self._answer *= not take
            return found

    @property
    def _channel(self) -> Channel:
        """That of all processes."""
        return self._bridge.channel((), range(self.count))

    def fail(self, error: BaseException) -> None:
        if not self._bridge.failed and not self.failed_elsewhere(error):
            self._bridge.fail(in_words(error))

    def failed_elsewhere(self, error: BaseException) -> bool:
        return isinstance(error, ProcessFailed)

    def _exchange(self, own: Any, sizes: Sequence[int], patience: float | None) -> list[Any]:
        """The arrays of all processes, of known sizes, given that of this one."""
        every: list[Any]
        if self._bridge.failed:
            self._bridge.renew(patience)
        every = [np.empty(n, own.dtype) for n in sizes]
        every[self.index] = own
        request = self._channel.exchange(*_to_others(self.index, own, every))
        Watched(request, self._bridge).wait(patience)
        return every


class Question:
    """A number, and the size of the batch, that the processes tell each other again and again: the
    memory for them stays.

    open: whether it was asked, and not answered yet; sizes: of all processes
    """

    def __init__(self, channel: Channel, bridge: Bridge) -> None:
        self.channel, self._bridge, self.open = channel, bridge, False
        self._numbers = np.zeros((bridge.count, 2), np.int64)
        every = [*self._numbers]
        self._own = every[bridge.index]
        self._prepared = channel.prepared(*_to_others(bridge.index, self._own, every))

    def ask(self, number: int, size: int) -> None:
        """Begin to tell the others this process's number and size."""
        if self.open:  # nobody wanted to know
            self.answer()
        self._own[:] = number, size
        self._request, self.open = Watched(self._prepared.start(), self._bridge), True

    def answer(self) -> int:
        """The largest of all numbers."""
        self._request.wait()
        self.open = False
        numbers, self.sizes = self._numbers.T.tolist()
        largest: int = max(numbers)
        return largest


def _to_others(me: int, own: Array, every: list[Array]) -> tuple[list[Any], list[Any]]:
    """What process `me` sends each other, and receives of it."""
    others = [q != me for q in range(len(every))]
    return [own if x else None for x in others], [
        into if x else None for into, x in zip(every, others, strict=True)
    ]
