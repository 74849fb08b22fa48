"""What this process is doing, noted in a few attributes that the watch connection reads.

The calls are cheap, so that they may stand in the innermost loops of a transport: no lock, no
system call, no allocation but a pair. They are made whether there is a watch or not.
"""

from __future__ import annotations

from time import monotonic
from typing import Any, Protocol

from graphc.runtime.supervision.frames import Frame


class Waited(Protocol):
    """What a rank waits in, such as a CollectiveCall: str() says what, `where` for which node."""

    @property
    def where(self) -> str: ...


class Reporter:
    """The step of this process, what its ranks wait for, and how many collectives they finished.

    ranks: the ranks of this process. Calls for one rank come from one thread at a time
    """

    __slots__ = ("_finished", "_waits", "deaf", "ranks", "step_number")

    def __init__(self) -> None:
        self.ranks: tuple[int, ...] = ()
        self.step_number = 0
        self.deaf = ""  # a native call that holds Python's lock, so that no heartbeat can be sent
        self._waits: dict[int, tuple[Any, float] | None] = {}
        self._finished: dict[int, int] = {}

    def step(self, number: int) -> None:
        """Step `number` begins."""
        self.step_number = number

    def waiting(self, call: Waited, rank: int = 0) -> None:
        """A rank begins to wait for its peers in a collective."""
        self._waits[rank] = call, monotonic()

    def going_on(self, rank: int = 0) -> None:
        """A rank has finished the collective that it waited in."""
        self._waits[rank] = None
        self._finished[rank] = self._finished.get(rank, 0) + 1

    def position(self) -> Frame:
        """Where this process stands: its longest wait, or none."""
        waits = [(*pair, rank) for rank, pair in list(self._waits.items()) if pair is not None]
        call, since, rank = min(waits, key=lambda x: x[1]) if waits else ("", monotonic(), 0)
        return {
            "step": self.step_number,
            "ranks": list(self.ranks[:64]),
            "done": sum(list(self._finished.values())),
            "call": self.deaf or str(call)[:400],
            "where": "" if self.deaf else str(getattr(call, "where", ""))[:400],
            "waited": max(0.0, monotonic() - since),
            "rank": rank,
            "deaf": bool(self.deaf),
        }


REPORTER = Reporter()  # of this process
