"""Warnings, each at the line of the user that it is about, or that called graphc."""

from __future__ import annotations

import warnings

from graphc.support.caller import user_frame
from graphc.support.errors import GraphcError, GraphcWarning


def warn(note: GraphcError, kind: str = "warning") -> None:
    """Warn of what would be an error's text, and go on. kind: warning or note.

    Python's filters see the place of the note, and the module whose line called graphc.
    """
    frame = user_frame()
    file, line = ("graphc", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
    if note.span is not None:
        file, line = note.span.file, note.span.line
    module = "graphc" if frame is None else frame.f_globals.get("__name__", file)
    shown = None if frame is None else frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(
        GraphcWarning(note.render(kind)), GraphcWarning, file, line, module, shown
    )


__all__ = ["warn"]
