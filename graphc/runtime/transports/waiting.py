"""How a thread waits for something that it can only look at, as for a message of MPI."""

from __future__ import annotations

import ctypes
import sys
import time

EAGER = 0.02  # seconds of looking again at once, before one sleeps in between
PAUSE = 5e-5  # seconds of such a sleep


def _yielding() -> object:
    """A call that lets another thread have the core, and the interpreter; it returns soon.

    `time.sleep(0)` is none: Linux rounds a sleep up by the slack of its timers, 50 us.
    """
    if sys.platform == "win32":
        return ctypes.WinDLL("kernel32").SwitchToThread
    return ctypes.CDLL(None).sched_yield


_yield = _yielding()


class Looks:
    """The pauses between the looks at one thing."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        """How long it takes by now."""
        return time.monotonic() - self._start

    def pause(self) -> None:
        """Give others a chance to go on: at first only that, later for a while."""
        if self.seconds < EAGER:
            _yield()  # type: ignore[operator]
        else:
            time.sleep(PAUSE)
