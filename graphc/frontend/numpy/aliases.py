"""Whether other names refer to the array of `a += x`.

An ndarray holds numbers, so of a traced x only the name a gets the result. Another name of the
array would keep the old numbers, where NumPy changes what both see: CPython's reference counts tell
that there is one.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

import numpy as np


def has_other_names(outs: tuple[Any, ...]) -> bool:
    """Whether something besides the name before `+=` refers to the array, or to memory that it
    shares.

    outs: out= of the call that `a += x` makes, as `__array_ufunc__` gets it
    """
    array = outs[0]
    if not isinstance(array, np.ndarray):
        return False
    base = array.base
    if isinstance(base, np.ndarray) and sys.getrefcount(base) > _OF_A_BASE:
        return True
    return _references(outs) > _of_one_name() + 1  # `array` here


_OF_A_BASE = 3  # of a view that is left alone: the view's, `base` here, and getrefcount's


def _references(outs: tuple[Any, ...]) -> int:
    return sys.getrefcount(outs[0])


class _ReferenceCounter:
    """Counts the references to an array in `a += x`, where a traced array would be x."""

    def __array_ufunc__(self, ufunc: object, method: str, *xs: object, **options: Any) -> int:
        outs = options.pop("out", None) or ()
        return _references(outs)


@lru_cache(maxsize=1)
def _of_one_name() -> int:
    """The references to an array that one name refers to."""
    names: dict[str, Any] = {"a": np.zeros(1)}
    names["a"] += _ReferenceCounter()
    return int(names["a"])
