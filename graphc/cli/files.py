"""Files that commands read and write."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from graphc.errors import GraphcError


def read_text(file: Path) -> str:
    """The content of a text file. Raises G0106."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise GraphcError("G0106", f"cannot read {file}: it is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        raise GraphcError("G0106", f"cannot read {file}: {_reason(error)}") from None


def write_text(file: Path, text: str) -> None:
    """Write so that a reader sees the old content or the new one, never a half. Raises G0512."""
    try:
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name[:40]}.")
    except (OSError, ValueError) as error:
        raise GraphcError("G0512", f"cannot write {file}: {_reason(error)}") from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as made:
            made.write(text)
        _take_mode(name, file)
        os.replace(name, file)
    except OSError as error:
        raise GraphcError("G0512", f"cannot write {file}: {_reason(error)}") from None
    finally:
        Path(name).unlink(missing_ok=True)


def _take_mode(name: str, file: Path) -> None:
    """Give the new file the rights of the old one, or those that a plain `open` would give."""
    if file.exists():
        shutil.copymode(file, name)
    else:
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
