"""Ctrl-C and SIGTERM: the running step is finished, then the run ends.

Ctrl-C raises KeyboardInterrupt, as everywhere in Python. SIGTERM raises Terminated, which is a
KeyboardInterrupt, if someone has asked for that, as the command line does.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn, Self


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived."""


def terminate(number: int, frame: FrameType | None) -> NoReturn:
    """The handler of SIGTERM while it ends a run in order."""
    raise Terminated


@contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """Inside this context SIGTERM raises Terminated, unless someone else handles it."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


# What handles a signal in the normal case, and what it raises.
_HANDLED: dict[int, tuple[Any, type[KeyboardInterrupt]]] = {
    signal.SIGINT: (signal.default_int_handler, KeyboardInterrupt),
    signal.SIGTERM: (terminate, Terminated),
}


class Uninterrupted:
    """Delays Ctrl-C and SIGTERM to the end of the context; a second one is raised at once.

    noted: what will be raised, or None
    """

    def __enter__(self) -> Self:
        self.noted: type[KeyboardInterrupt] | None = None
        self._over = False
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number, (usual, _) in _HANDLED.items():
                if signal.getsignal(number) is usual:
                    self._before[number] = usual
                    signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.noted or self._over:
            raise _HANDLED[number][1]
        self.noted = _HANDLED[number][1]

    def __exit__(self, kind: object, *_: object) -> None:
        self._over = True  # what comes while the handlers are put back is raised as usual
        for number, before in self._before.items():
            signal.signal(number, before)
        if self.noted and kind is None:
            raise self.noted
