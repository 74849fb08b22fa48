"""Files that commands read."""

from __future__ import annotations

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


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
