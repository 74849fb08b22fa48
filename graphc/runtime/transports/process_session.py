"""Sessions whose ranks are threads of several processes, which a bridge connects.

Each process has equally many ranks, in a row. Among themselves they are as in a session of one
process; what a group with members elsewhere does goes over the bridge. A run that fails in one
process fails in all of them, and the next one begins anew.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self, TypeVar

import numpy as np

from graphc.runtime.supervision.reporter import REPORTER
from graphc.runtime.transports.bridge import Bridge, Channel, ProcessFailed, Request
from graphc.runtime.transports.local import LocalSession, Ranks
from graphc.runtime.transports.packets import MemoryPool
from graphc.runtime.transports.processes import Processes
from graphc.runtime.transports.spanning import Spanning
from graphc.runtime.transports.transport import CollectiveCall, Communicator, EndAgreed, Group
from graphc.runtime.transports.waiting import Looks
from graphc.support.errors import GraphcError, codes

T = TypeVar("T")
GRACE = 1.0  # seconds that what a process sent before it ended may take to arrive
EACH = 16  # looks between those for failures
ENDED = "ended"
MOST = 128  # different collectives that are kept to be made again


class ProcessSession:
    """`size` ranks, of which this process has its part; see `TransportSession`.

    Raises G0702 if the ranks can't be dealt evenly to the processes.
    """

    def __init__(
        self, size: int, bridge: Bridge, deadline: float | None = None,
        groups: Iterable[Group] = (),
    ) -> None:  # fmt: skip
        self.size, self._bridge, self._groups = size, bridge, tuple(groups)
        self._each = devices_of_process(size, bridge.count)
        self.here = range(self._each * bridge.index, self._each * (bridge.index + 1))
        self.processes: Processes = JobProcesses(bridge)
        REPORTER.ranks = tuple(self.here)
        ranks = Ranks(
            self.here, self._each * bridge.on_host, self._begin, self.processes.answer, self._look
        )
        self._watched = Watched(Never(), bridge)
        self._queues: dict[Group, CollectiveQueue] = {}
        self._made = Collectives(self.here, self._channel)
        self._members: dict[Group, list[int]] = {}
        self._local = LocalSession(size, deadline, ranks)
        self._connect()

    def run(self, fn: Callable[[Communicator], T]) -> list[T]:
        """See graphc.runtime.transports.transport."""
        if self._bridge.failed:
            self._connect()
        try:
            results = self._local.run(fn)
            self._finish()
            return results
        except EndAgreed:
            self._finish()
            raise
        except BaseException as error:
            self._forget()
            if not isinstance(error, ProcessFailed):
                self._bridge.fail(in_words(error))
            raise

    def _finish(self) -> None:
        """What nobody here waits for, others may."""
        for queue in self._queues.values():
            Watched(queue, self._bridge).wait()

    def _connect(self) -> None:
        """The channels of all groups, in one order everywhere: a channel waits for its members."""
        if self._bridge.failed:
            self._bridge.renew()
        self._forget()
        self._watched = Watched(Never(), self._bridge)
        # All are here then, or one has failed: what makes a channel can't look for that.
        self.processes.all_gather(b"")
        for group in sorted({*self._groups, tuple(range(self.size))}):
            if len(self._processes(group)) > 1 and any(rank in self.here for rank in group):
                self._bridge.channel(group, self._processes(group))

    def _processes(self, group: Group) -> list[int]:
        if group not in self._members:
            self._members[group] = sorted({rank // self._each for rank in group})
        return self._members[group]

    def _forget(self) -> None:
        """What is under way has failed, and will never be done."""
        self._queues.clear()
        self._made = Collectives(self.here, self._channel)

    def _channel(self, group: Group) -> Channel:
        return self._bridge.channel(group, self._processes(group))

    def _begin(self, call: CollectiveCall, xs: Sequence[Any], outs: Sequence[Any]) -> Watched:
        queue = self._queues.get(call.group)
        if queue is None:
            queue = self._queues.setdefault(call.group, CollectiveQueue())
        what = self._made.of(call, next(x for x in xs if x is not None))
        what.begin(xs, outs)
        return Watched(queue.begin(what), self._bridge)

    def _look(self) -> None:
        """Raise the error of another process, if it is known that one has failed."""
        self._watched.done()

    def close(self) -> None:
        """End the threads, and tell the other processes. A second close does nothing."""
        self._local.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def devices_of_process(size: int, processes: int) -> int:
    """How many of `size` devices each process has. Raises G0702 if they can't be dealt evenly."""
    each, left = divmod(size, processes)
    if left or not each:
        raise GraphcError(
            "G0702",
            f"the strategy has {size} device{'s' * (size != 1)}, and there are {processes} "
            "processes: each must have equally many",
            help="start as many processes as divide the number of devices, or change the strategy",
        )
    return each


class Collectives:
    """The collectives that a process has made, to be made again: those of a step are alike.

    A call is found by its identity first, since it takes long to compare all that it says.
    """

    def __init__(self, here: range, channel: Callable[[Group], Channel]) -> None:
        self._here, self._channel, self._pool = here, channel, MemoryPool()
        self._mutex = threading.Lock()
        self._found: dict[Any, tuple[CollectiveCall, list[Spanning]]] = {}
        self._alike: OrderedDict[Any, list[Spanning]] = OrderedDict()

    def of(self, call: CollectiveCall, x: Any) -> Spanning:
        """One that is not under way, for this call and arrays of this type."""
        key = id(call), x.shape, x.dtype
        with self._mutex:
            if key in self._found:
                some = self._found[key][1]
            else:
                some = self._of_value((call, x.shape, x.dtype))
                self._found[key] = call, some  # the call stays, and so its identity
            for what in some:
                if not what.busy:
                    what.busy = True
                    return what
        channel = self._channel(call.group)
        what = Spanning(call, x.shape, x.dtype, channel, self._here, self._pool)
        what.busy = True
        some.append(what)
        return what

    def _of_value(self, key: Any) -> list[Spanning]:
        if key not in self._alike and len(self._alike) == MOST:
            self._found.clear()
            _, oldest = self._alike.popitem(last=False)
            for what in oldest:
                if not what.busy:
                    what.free()
        self._alike.setdefault(key, [])
        self._alike.move_to_end(key)
        if len(self._found) >= 4 * MOST:
            self._found.clear()
        return self._alike[key]


class CollectiveQueue:
    """The collectives of one group that are under way, in the order in which they were begun.

    They may be waited for in any order, which can differ from process to process. But the second
    exchanges that some make must be begun in one order: an earlier collective goes first.
    """

    def __init__(self) -> None:
        self._under_way: deque[QueuedCollective] = deque()
        self._mutex = threading.Lock()  # threads of several ranks may wait at a time

    def begin(self, what: Spanning) -> QueuedCollective:
        with self._mutex:
            queued = QueuedCollective(self, what)
            self._under_way.append(queued)
        return queued

    def progress(self, wanted: QueuedCollective) -> bool:
        """Whether a collective is done, after each was advanced as far as its turn allows."""
        with self._mutex:
            for queued in tuple(self._under_way):
                if queued.what.done():
                    queued.over = True
                    self._under_way.remove(queued)
                elif not queued.what.begun:
                    break
                if queued is wanted:
                    break
            return wanted.over

    def done(self) -> bool:
        """Whether all of them are done."""
        while self._under_way and self.progress(self._under_way[0]):
            pass
        return not self._under_way


class QueuedCollective:
    """A collective, and whether it is done: the next one may be made of the same by then."""

    __slots__ = ("over", "queue", "what")

    def __init__(self, queue: CollectiveQueue, what: Spanning) -> None:
        self.queue, self.what, self.over = queue, what, False

    def done(self) -> bool:
        return self.over or self.queue.progress(self)


class Watched:
    """Something that was begun with other processes: it ends with an error if one has failed."""

    __slots__ = ("_gone", "_looks", "bridge", "request")

    def __init__(self, request: Request, bridge: Bridge) -> None:
        self.request, self.bridge, self._looks = request, bridge, 0
        self._gone: float | None = None  # when a process that has ended was first noticed

    def done(self) -> bool:
        if self.request.done():
            return True
        self._looks += 1
        failure = self.bridge.failure() if self._looks % EACH == 0 else None
        if failure is not None:
            self._look(*failure)
        return False

    def _look(self, process: int, words: str) -> None:
        if words == ENDED:
            self._gone = self._gone or time.monotonic()
            if time.monotonic() - self._gone < GRACE:
                return
        self.bridge.failed = True
        raise of_words(process, words)

    def wait(self, patience: float | None = None) -> None:
        """Wait until it is done. Raises G0566 if it is not after `patience` seconds."""
        if self.done():
            return
        looks = Looks()
        REPORTER.waiting(AGREEMENT, OF_ALL)
        while not self.done():
            if patience is not None and looks.seconds > patience:
                self.bridge.failed = True
                text = f"other processes have not answered within {patience:g} s"
                raise ProcessFailed("G0566", text, -1)
            looks.pause()
        REPORTER.going_on(OF_ALL)


class Never:
    """What is waited for by somebody who looks at other things."""

    def done(self) -> bool:
        return False


class Agreement:
    """What the processes tell each other beside the values of a step, for reports."""

    where = ""

    def __str__(self) -> str:
        return "an agreement of all processes"


AGREEMENT, OF_ALL = Agreement(), -1  # in the place of a rank


class JobProcesses:
    """The processes of a job, over a bridge."""

    def __init__(self, bridge: Bridge) -> None:
        self.index, self.count = bridge.index, bridge.count
        self._bridge = bridge
        self._mutex = threading.Lock()
        self._asked: tuple[Channel, Any, list[Any]] | None = None
        self._answer = 0

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

    def largest(self, number: int) -> int:
        every = self._exchange(np.array([number], np.int64), [1] * self.count, None)
        return max(int(x[0]) for x in every)

    def ask(self, number: int) -> None:
        own, sizes = np.array([number], np.int64), [1] * self.count
        with self._mutex:
            self._asked, self._answer = self._begin(own, sizes, None), 0

    def answer(self, take: bool = False) -> int:
        with self._mutex:
            if self._asked is not None:
                channel, request, every = self._asked
                self._asked = None
                if channel is self._channel:  # else it was before a failure
                    request.wait()
                    self._answer = max(int(x[0]) for x in every)
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
        _, request, every = self._begin(own, sizes, patience)
        request.wait(patience)
        return every

    def _begin(self, own: Any, sizes: Sequence[int], patience: float | None) -> Any:
        """The channel, what was begun, and the arrays that will be there when it is done."""
        if self._bridge.failed:
            self._bridge.renew(patience)
        others = [q != self.index for q in range(self.count)]
        every = [np.empty(n, own.dtype) for n in sizes]
        channel = self._channel
        request = channel.exchange(
            [own if other else None for other in others],
            [x if other else None for x, other in zip(every, others, strict=True)],
        )
        every[self.index] = own
        return channel, Watched(request, self._bridge), every


# -- failures, in words ----------------------------------------------------------------------------


def in_words(error: BaseException) -> str:
    """An error for the other processes."""
    if isinstance(error, GraphcError):
        return json.dumps([error.code, error.message, error.render()])
    return json.dumps(["", f"{type(error).__name__}: {error}".rstrip(": "), ""])


def of_words(process: int, words: str) -> ProcessFailed:
    """The error of another process, as `in_words` put it."""
    if words == ENDED:
        return ProcessFailed(
            "G0566", f"process {process} has ended, but others wait for it", process
        )
    try:
        code, message, text = map(str, json.loads(words))
    except (ValueError, TypeError):
        code, message, text = "", words, ""
    if code in codes():
        return ProcessFailed(code, message, process, text)
    return ProcessFailed("G0566", f"process {process} has failed: {message}", process)
