"""Python's own functions of which a trace has another meaning: len, max and min.

`len` wants a plain int, and `max(0, x)` the truth of `x > 0`: a traced array has neither. What
stands in for them calls the originals for all that is not traced.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable
from functools import partial, reduce, wraps
from typing import Any

import numpy as np

from graphc.frontend.numpy.length import Traced
from graphc.frontend.numpy.session import open_session

Function = Callable[..., Any]


def _measured(original: Function) -> Function:
    @wraps(original)
    def length(obj: Any, /) -> Any:
        return obj.length() if isinstance(obj, Traced) else original(obj)

    return length


def _chosen(original: Function, beats: Callable[[Any, Any], Any]) -> Function:
    """max or min: of equal ones the first, and a NaN where it stands first, as Python has it."""

    def better(best: Any, x: Any) -> Any:
        wins: Any = beats(x, best)
        traced = isinstance(wins, Traced)
        return np.where(wins, x, best) if traced else x if wins else best

    @wraps(original)
    def choose(*args: Any, **options: Any) -> Any:
        if options or not args or open_session() is None:
            return original(*args, **options)
        items = list(args if args[1:] else args[0])
        if any(isinstance(x, Traced) for x in items) and all(map(_is_number, items)):
            return reduce(better, items)
        return original(items)

    return choose


def _is_number(x: Any) -> bool:
    """Whether something can be compared with a traced number, and gives one number."""
    known = isinstance(x, int | float | np.generic | np.ndarray | Traced)
    return known and getattr(x, "ndim", 0) == 0


_MAKERS: dict[str, Callable[[Function], Function]] = {
    "len": _measured,
    "max": lambda original: _chosen(original, operator.gt),
    "min": lambda original: _chosen(original, operator.lt),
}


def python_makers() -> dict[int, Callable[[], Function]]:
    """What makes the functions that stand in for Python's, by the identity of these."""
    own = ((getattr(builtins, name), make) for name, make in _MAKERS.items())
    return {id(function): partial(make, function) for function, make in own}


__all__ = ["python_makers"]
