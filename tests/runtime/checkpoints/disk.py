"""A disk that fails, or a machine that dies, at one call of a save."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from typing import Any

import pytest

CALLS = ("mkdir", "open", "write", "fsync", "close", "rename", "unlink", "rmdir")
ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES)


class Crash(BaseException):
    """The machine is dead: nothing else is done."""


class Disk:
    """Counts the calls that change a disk, and does something at one of them.

    at:    the number of that call; None: no call
    event: what happens there: 'before' and 'after' it the machine dies, 'half' dies in the middle
           of a write; a number is the error that the call gives
    After its death the machine has lost what was written and not brought to the disk.
    """

    def __init__(self, patch: pytest.MonkeyPatch, at: int | None, event: str | int) -> None:
        self.calls: list[str] = []
        self._at, self._event, self._dead = at, event, False
        self._paths: dict[int, str] = {}
        self._unsynced: set[str] = set()
        for name in CALLS:
            patch.setattr(os, name, self._watched(name, getattr(os, name)))

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            if self._dead and name != "close":
                raise Crash
            if name == "close" or (name == "open" and not args[1] & os.O_CREAT):
                return self._done(name, args, real(*args, **more))
            self.calls.append(name)
            if len(self.calls) - 1 != self._at:
                return self._done(name, args, real(*args, **more))
            if isinstance(self._event, int):
                raise OSError(self._event, os.strerror(self._event))
            if self._event == "half" and name == "write":
                self._done(name, args, real(args[0], bytes(args[1])[: len(args[1]) // 2]))
            if self._event == "after":
                self._done(name, args, real(*args, **more))
            self._dead = True
            raise Crash

        return call

    def _done(self, name: str, args: tuple[Any, ...], result: Any) -> Any:
        """Note which files have content that a power failure would take away."""
        match name:
            case "open":
                self._paths[result] = str(args[0])
                if args[1] & os.O_CREAT:
                    self._unsynced.add(str(args[0]))
            case "write":
                self._unsynced.add(self._paths[args[0]])
            case "fsync":
                self._unsynced.discard(self._paths[args[0]])
            case "rename":
                renamed = {p for p in self._unsynced if p.startswith(f"{args[0]}{os.sep}")}
                self._unsynced -= renamed
                self._unsynced |= {str(args[1]) + p[len(str(args[0])) :] for p in renamed}
        return result

    def lose(self) -> None:
        """Take away what the disk did not have when the machine died."""
        for path in self._unsynced:
            if os.path.exists(path) and stat.S_ISREG(os.stat(path).st_mode):
                os.truncate(path, 0)
