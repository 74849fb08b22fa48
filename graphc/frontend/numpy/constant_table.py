"""`np.take(TABLE, ids)` of a constant table and traced ids.

NumPy dispatches a call to a traced array only for the arguments that the function declares, and
np.take declares the table only: traced indices would be converted to an array, but have no numbers
yet. So while a function is traced, np.take is replaced by one that looks at the indices too; for
all other arguments it is NumPy's own.
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
    """Replace np.take inside the block by one that looks at its indices too."""
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
