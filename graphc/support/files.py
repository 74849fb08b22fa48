"""Files that are read and written whole: a reader sees the old content or the new one, never a mix.

New content is written to a temporary file in the same folder, brought to the disk (fsync), and then
renamed; the folder is brought to the disk too. So several writers of one path do not disturb each
other (the last one wins), and a process that is killed leaves the old file, and perhaps a hidden
temporary one.

Only regular files are replaced: a device, a pipe, a socket or a folder is an error. A symbolic link
is followed, and its target is replaced; other hard links keep the old content. The new file has the
permissions of the old one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from graphc.support.errors import GraphcError

KINDS = {
    stat.S_IFDIR: "a folder", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket",
}  # fmt: skip


def write_whole(path: str | Path, content: bytes | str, code: str = "G0512") -> None:
    """Replace a file; text is written as UTF-8. Raises an error with this code if that fails."""
    with writing(path, code), replaced(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def read_whole(path: str | Path, code: str, what: str = "") -> bytes:
    """The content of a regular file. Raises an error with this code if it can't be read.

    Other kinds of files are refused: a pipe or a device may never end.
    """
    try:
        if not stat.S_ISREG(mode := os.stat(path).st_mode):
            raise OSError(None, f"it is {kind_of(mode)}")
        with open(path, "rb") as file:
            return file.read()
    except (OSError, ValueError) as error:
        raise GraphcError(code, f"can't read {what}{path}: {reason_of(error)}") from None


@contextmanager
def replaced(path: str | Path, durable: bool = True) -> Iterator[IO[bytes]]:
    """A new file, which replaces `path` when the block ends without an error.

    durable: whether it must survive a power failure. Raises OSError, ValueError.
    """
    target, old = _target(path)
    name, handle = _temporary(target, 0o666 if old is None else 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            if old is not None:
                _take_rights(old, name)
            if durable:
                os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
    if durable:
        _sync_folder(target.parent)


def check_writable(path: str | Path, code: str = "G0512") -> None:
    """Raise now what writing the file would raise later: for a missing folder, a missing
    permission, or a path that is not a regular file."""
    with writing(path, code):
        target, _ = _target(path)
        name, handle = _temporary(target, 0o600)
        os.close(handle)
        os.unlink(name)


@contextmanager
def writing(path: str | Path, code: str = "G0512") -> Iterator[None]:
    """Turn an OSError or a ValueError into a GraphcError that names the file."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise GraphcError(code, f"can't write {path}: {reason_of(error)}") from None


def reason_of(error: Exception) -> str:
    """What went wrong, without the name of the file."""
    return getattr(error, "strerror", None) or str(error)


def kind_of(mode: int) -> str:
    """In words, what is not a regular file."""
    return KINDS.get(stat.S_IFMT(mode), "not a regular file")


def _target(path: str | Path) -> tuple[Path, os.stat_result | None]:
    """The file to be replaced, after following links, and its status."""
    if not str(path):
        raise ValueError("it has no name")
    target = Path(os.path.realpath(path))
    try:
        old = os.stat(path)
    except FileNotFoundError:
        if str(path).endswith(os.sep):
            raise
        return target, None
    if not stat.S_ISREG(old.st_mode):
        raise OSError(None, f"it is {kind_of(old.st_mode)}, and only regular files are replaced")
    if not os.access(path, os.W_OK):
        raise PermissionError(None, "it is read-only")
    return target, old


def _temporary(target: Path, mode: int) -> tuple[str, int]:
    """A new file beside the target, with a name that nobody else uses: its path, and a handle."""
    name = str(target.parent / f".{target.name[:40]}.{os.urandom(6).hex()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    return name, os.open(name, flags, mode)  # less the umask, as a plain `open` has it


def _take_rights(old: os.stat_result, name: str) -> None:
    """Give a new file the permissions of the old one, and its owner as far as that is allowed."""
    if hasattr(os, "chown"):
        with suppress(OSError):
            os.chown(name, old.st_uid, old.st_gid)
    os.chmod(name, old.st_mode & 0o777)


def _sync_folder(folder: Path) -> None:
    """Bring the folder's entries to the disk, on file systems that can do so."""
    if os.name != "posix":
        return
    with suppress(OSError):  # the file is in its place already
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
