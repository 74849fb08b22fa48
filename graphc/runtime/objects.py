"""A folder of compiled objects, by the hash of what they were made from.

Several processes may use it at once: a file is written under another name and then moved to its
place. A damaged file counts as none. A folder that can't be used is no error: nothing is kept then.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from graphc.config import IMPORTED

LIMIT = 1 << 30  # bytes of all files; the ones that were not used for longest are dropped
DIGEST = 32  # bytes of the checksum in front of an object


@dataclass(frozen=True)
class Objects:
    """The cache in a folder; None for one that keeps nothing."""

    folder: Path | None
    limit: int = LIMIT

    @classmethod
    def at(cls, base: Path | None) -> Objects:
        """The objects under a cache folder, which is made where it is not there yet."""
        if base is None:
            return cls(None)
        folder = base / "objects"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            return cls(None)
        return cls(folder if _is_mine(folder) else None)

    def read(self, key: str) -> bytes | None:
        """The object, if it is there and whole."""
        if self.folder is None:
            return None
        path = self._path(key)
        try:
            with path.open("rb") as file:
                if not _belongs_to_me(os.fstat(file.fileno())):
                    return None
                data = file.read()
        except OSError:
            return None
        code = data[DIGEST:]
        if hashlib.sha256(code).digest() != data[:DIGEST]:
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return code

    def write(self, key: str, code: bytes) -> None:
        """Keep an object, and drop old ones where there are too many."""
        if self.folder is None:
            return
        with contextlib.suppress(OSError):
            self._put(self._path(key), hashlib.sha256(code).digest() + code)
            self._drop_oldest()

    def _path(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{key}.o"

    def _put(self, path: Path, data: bytes) -> None:
        handle, name = tempfile.mkstemp(prefix=".", dir=self.folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise

    def _drop_oldest(self) -> None:
        found = sorted(self._sizes(), reverse=True)
        total = 0
        for _, size, path in found:
            total += size
            if total > self.limit:
                with contextlib.suppress(OSError):
                    path.unlink()

    def _sizes(self) -> Iterator[tuple[float, int, Path]]:
        """(time of last use, bytes, path) of every file; another process may drop one meanwhile."""
        assert self.folder is not None
        for path in self.folder.iterdir():
            with contextlib.suppress(OSError):
                found = path.stat()
                yield found.st_mtime, found.st_size, path


def _is_mine(folder: Path) -> bool:
    """Whether nobody else can put code there: what is read is run."""
    return _belongs_to_me(folder.stat())


def _belongs_to_me(found: os.stat_result) -> bool:
    """Whether nobody else can write there."""
    if os.name != "posix":
        return True
    return found.st_uid == os.getuid() and not found.st_mode & 0o022


def changed(source: os.stat_result) -> str:
    """'' for a file of source that is as old as the code that this process runs; else a text that
    nobody else has: what is made now is of neither file for sure, and must not be found again."""
    return f"{os.getpid()} {time.time_ns()}" if source.st_mtime_ns > IMPORTED else ""
