"""Text files that commands read."""

from __future__ import annotations

from pathlib import Path

from graphc.support.errors import GraphcError

MAX_TEXT = 1 << 28  # the largest graph in text form, in bytes


def read_text(file: Path) -> str:
    """Read a text file. Raises G0106 if it can't be read."""
    try:
        with open(file, "rb") as opened:
            data = opened.read(MAX_TEXT + 1)
        if len(data) > MAX_TEXT:
            raise GraphcError("G0106", f"cannot read {file}: it has more than {MAX_TEXT:,} bytes")
        return data.decode().replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise GraphcError("G0106", f"cannot read {file}: it is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        raise GraphcError("G0106", f"cannot read {file}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
