"""A pause of Python's garbage collector, for code that makes many objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Don't look for garbage cycles inside the block.

    A compiler makes many small objects, of which nearly all live to its end. To walk them again and
    again finds nothing, and would make the time superlinear.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
