"""Warnings about a traced step, each at the line that it is about."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from graphc.support.errors import GraphcError, GraphcWarning


def warn_of(notes: Iterable[GraphcError]) -> None:
    """Warn of each, as of the user's own file and line."""
    for note in notes:
        warning = GraphcWarning(note.render("warning"))
        file, line = (note.span.file, note.span.line) if note.span else ("<unknown>", 1)
        warnings.warn_explicit(warning, GraphcWarning, file, line)
