"""Who uses the devices of an engine: one thread at a time, until the engine is closed."""

from __future__ import annotations

import threading
from collections.abc import Callable

from graphc.support.errors import GraphcError


class DeviceLock:
    """lock: held by whoever uses the devices; closed: whether `close` was called."""

    def __init__(self) -> None:
        self.lock, self.closed = threading.Lock(), False

    def check(self) -> None:
        """Raise G0563 if the devices are in use, or closed."""
        if self.closed:
            help = "use the trainer before close(), or inside of its `with` block"
            raise GraphcError("G0563", "the session is closed", help=help)
        if self.lock.locked():
            raise GraphcError("G0563", "the session is in the middle of another run")

    def close(self, end: Callable[[], None]) -> None:
        """Call `end` when nobody uses the devices.

        A step that is under way, on another thread or below a signal's handler, is finished first.
        This does not wait for it, as the step of a handler's own thread would never end.
        """
        self.closed = True
        if not self.lock.acquire(blocking=False):
            later = threading.Thread(target=self._close, args=(end,), name="graphc-close")
            later.daemon = True
            later.start()
            return
        try:
            end()
        finally:
            self.lock.release()

    def _close(self, end: Callable[[], None]) -> None:
        with self.lock:
            end()
