"""The rows of a profile's tables."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from graphc.support.dataclass import dataclass

By: TypeAlias = Literal["line", "op", "kernel", "collective", "node"]
BY: tuple[By, ...] = get_args(By)
SHOWN: tuple[By, ...] = ("line", "op", "kernel", "collective")  # where nothing is said


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """What a line, an op, a kernel or a collective takes of a step, on average.

    seconds: of a thread's time, added over all threads and divided by their number: the rows of a
             table are the time of a step together. waiting: likewise, what threads waited right
             before it, which is in no other row but that of waiting
    share:   of the step; runs: how often a step runs it, on all devices and in all turns
    flops, bytes: a second, of one thread; limit: the larger share of what the machine can do of
             both, and which it is ("compute" or "memory"); None where it isn't known
    sent:    of a collective: bytes that a device sends in a step
    """

    label: str
    seconds: float
    share: float
    waiting: float = 0.0
    runs: float = 0.0
    flops: float = 0.0
    bytes: float = 0.0
    limit: float | None = None
    bound: str = ""
    file: str = ""
    line: int = 0
    sent: float = 0.0
    nodes: tuple[str, ...] = ()
