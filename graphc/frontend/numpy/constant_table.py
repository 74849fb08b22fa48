"""`np.take(TABLE, ids)` of a constant table and traced ids.

NumPy hands a function to the arrays that it looks at for that, and np.take looks at the table only:
a traced index would be converted to an array, which it has not yet. So while a function is traced,
np.take looks at the indices, too; for anything but traced ones it is NumPy's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from threading import Lock
from typing import Any

import numpy as np

from graphc.frontend.numpy.length import Traced

_TAKE = np.take
_LOCK = Lock()
_open = 0  # traces that are running


@wraps(_TAKE)
def _take(*args: Any, **options: Any) -> Any:
    index = _traced(args[1] if len(args) > 1 else options.get("indices"))
    if index is None or isinstance(args[0] if args else options.get("a"), Traced):
        return _TAKE(*args, **options)
    return index.__array_function__(_TAKE, (type(index),), args, options)


def _traced(x: Any) -> Any:
    """A traced array in an argument, or None."""
    if isinstance(x, list | tuple):
        return next((t for t in map(_traced, x) if t is not None), None)
    return x if isinstance(x, Traced) else None


@contextmanager
def taking() -> Iterator[None]:
    """Let np.take look at its indices inside."""
    global _open
    with _LOCK:
        _open += 1
        np.take = _take
    try:
        yield
    finally:
        with _LOCK:
            _open -= 1
            if not _open:
                np.take = _TAKE
