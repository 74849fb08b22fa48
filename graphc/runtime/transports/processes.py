"""The processes of a job: what they tell each other beside the values of a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Processes(Protocol):
    """The processes of a job, as one of them sees them. All make the same calls in one order.

    index: the number of this process; process 0 speaks and writes for all
    count: how many there are
    """

    @property
    def index(self) -> int: ...
    @property
    def count(self) -> int: ...

    def all_gather(self, data: bytes) -> list[bytes]:
        """What each process passed, by number."""
        ...

    def broadcast(self, data: bytes) -> bytes:
        """What process 0 passed."""
        ...


@dataclass(frozen=True)
class Alone:
    """A job of one process."""

    index: int = 0
    count: int = 1

    def all_gather(self, data: bytes) -> list[bytes]:
        return [data]

    def broadcast(self, data: bytes) -> bytes:
        return data


ALONE = Alone()
