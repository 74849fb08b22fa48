"""The user's own line: the innermost frame outside of graphc and NumPy, with its columns."""

from __future__ import annotations

import linecache
import os
import re
import sys
from functools import lru_cache
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType

import numpy as np

from graphc.support.errors import Span

_OWN = (str(Path(__file__).parents[2]) + os.sep, str(Path(np.__file__).parent) + os.sep)


@lru_cache(maxsize=4096)
def _is_own(filename: str) -> bool:
    # "<__array_function__ internals>" is what NumPy's compiled dispatchers were once called.
    return filename.startswith(_OWN) or filename.startswith("<__array_function__")


def user_frame() -> FrameType | None:
    """The innermost frame whose file belongs neither to graphc nor to NumPy."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_own(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def user_span() -> Span | None:
    """The span of the user's code that is running."""
    frame = user_frame()
    if frame is None:
        return None
    return _span(frame.f_code, frame.f_code.co_filename, frame.f_lasti)


@lru_cache(maxsize=65536)
def _span(code: CodeType, filename: str, instruction: int) -> Span:
    # The file's name is a part of the key: equal code in two files is one key otherwise.
    at = next(islice(code.co_positions(), instruction // 2, None), (None,) * 4)
    line, last, start, stop = at
    if line is None or start is None or stop is None:
        return Span(filename, line or code.co_firstlineno)
    text = linecache.getline(filename, line)
    if not text.isascii():  # positions count bytes
        start = _characters(text, start)
        stop = _characters(text, stop) if last == line else stop
    end = stop if last == line else len(text.rstrip())
    return Span(filename, line, start + 1, max(1, end - start))


_ASSIGNMENT = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*(?=[^=\s])")


@lru_cache(maxsize=65536)
def assigned_name(span: Span) -> str | None:
    """The name in `name = code`, if the code at `span` is the whole right side."""
    text = linecache.getline(span.file, span.line).rstrip()
    match = _ASSIGNMENT.match(text)
    if match is None or match.end() != span.col - 1:
        return None
    rest = text[span.col - 1 + span.length :].lstrip()
    return match[1] if not rest or rest.startswith("#") else None


def _characters(text: str, offset: int) -> int:
    return len(text.encode()[:offset].decode(errors="ignore"))


@lru_cache(maxsize=1)
def _in_place_instructions() -> frozenset[tuple[int, int]]:
    import dis

    ops = [arg for arg, (name, _) in enumerate(dis._nb_ops) if name.startswith("NB_INPLACE")]  # type: ignore[attr-defined]
    return frozenset((dis.opmap["BINARY_OP"], arg) for arg in ops)


def in_augmented_assignment() -> bool:
    """Whether the user's code is at `x += y` (or `-=`, ...), which rebinds the name by itself."""
    frame = user_frame()
    if frame is None:
        return False
    code, at = frame.f_code.co_code, frame.f_lasti
    return (code[at], code[at + 1]) in _in_place_instructions()
