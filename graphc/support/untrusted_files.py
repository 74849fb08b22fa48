"""Opening files that are not trusted: regular ones only, and patterns that can't match too much.

Whatever is wrong with a file is `Unreadable`, with a reason that repeats none of its contents: a
program may name any file that its user can read, and others may see the error message.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from glob import has_magic
from pathlib import Path
from typing import Any

MAX_LOOKED_AT = 100_000  # entries of folders, for one pattern


class Unreadable(Exception):
    """A file that can't be read as the format that is wanted; the text says why."""


@contextmanager
def reading() -> Iterator[None]:
    """Turn whatever a reader raises, except FileNotFoundError, into `Unreadable`.

    zipfile, its decompressors and NumPy raise errors of many types (zlib.error, NotImplementedError
    for a method, RuntimeError for a password, TokenError, MemoryError), and document no list of
    them.
    """
    try:
        yield
    except (Unreadable, FileNotFoundError):
        raise
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from None
    except UnicodeDecodeError:
        raise Unreadable("it is not UTF-8 text") from None
    except MemoryError:
        raise Unreadable("there is not enough memory for what it says it holds") from None
    except Exception as error:
        raise Unreadable(f"{error}" or type(error).__name__) from None


@contextmanager
def opened(path: Path, buffering: int = -1) -> Iterator[Any]:
    """A regular file, opened for reading. Raises Unreadable for devices, which may never end."""
    with open(path, "rb", buffering, opener=_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Unreadable("it is a device or a pipe, not a file")
        yield file


def _without_waiting(path: str, flags: int) -> int:
    """Open a file without waiting: a pipe would wait for a writer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


# -- patterns -------------------------------------------------------------------------------------


def files_of(path: str) -> list[Path]:
    """The files that match a path with `*`, `?` or `[ ]`, sorted by name.

    `**` stands for any number of folders; it does not follow links. Raises Unreadable for a pattern
    that would look at more than MAX_LOOKED_AT entries.
    """
    if not has_magic(path) or _is_there(path):
        return [Path(path)]
    anchor, parts = Path(path).anchor, Path(path).parts
    budget = _Budget(MAX_LOOKED_AT)
    paths = [Path(anchor)]
    for part in parts[1:] if anchor else parts:
        paths = list(dict.fromkeys(_step(paths, part, budget)))
    return sorted(p for p in paths if _is_there(p)) or [Path(path)]


class _Budget:
    """How many entries of folders may still be looked at."""

    def __init__(self, left: int) -> None:
        self.left = left

    def entries(self, folder: Path) -> Iterator[os.DirEntry[str]]:
        self._spend()
        try:
            with os.scandir(folder) as listing:
                for entry in listing:
                    self._spend()
                    yield entry
        except OSError:  # no folder, or one that is closed to us
            return

    def _spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Unreadable(f"the pattern looks at more than {MAX_LOOKED_AT:,} files")


def _step(folders: Iterable[Path], part: str, budget: _Budget) -> Iterator[Path]:
    """What one component of a pattern matches in each of the folders."""
    for folder in folders:
        if part == "**":
            yield from _below(folder, budget)
        elif not has_magic(part):
            yield folder / part
        else:
            names = [e.name for e in budget.entries(folder)]
            yield from (folder / n for n in names if _matches(n, part))


def _below(folder: Path, budget: _Budget) -> Iterator[Path]:
    """A folder and all folders in it; with the files, for a `**` at the end of a pattern."""
    stack = [folder]
    while stack:
        here = stack.pop()
        yield here
        for entry in budget.entries(here):
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                stack.append(here / entry.name)
            else:
                yield here / entry.name


def _matches(name: str, part: str) -> bool:
    return fnmatchcase(name, part) and (part.startswith(".") or not name.startswith("."))


def _is_there(path: str | Path) -> bool:
    try:
        return os.path.lexists(path)
    except ValueError:  # a zero byte
        return False
