"""Functions that do not ask their arguments, and that are replaced while a function is traced.

NumPy dispatches a call to a traced array only for the arguments that a function declares: np.take
declares the table but not the indices, np.zeros((n, 3)) nothing at all, and Python's `len` wants a
plain int. So while a function is traced, each is replaced by one that also looks for traced arrays,
or for the run-time length of the batch, in its other arguments; for all else it is the original.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import Lock
from typing import Any

import numpy as np

from graphc.frontend.numpy import sized_arrays, special
from graphc.frontend.numpy.length import Length, Traced
from graphc.frontend.numpy.session import open_session

_LOCK = Lock()
_open = 0  # traces that are running


def _depends(x: Any) -> bool:
    """Whether an argument is a run-time length, or contains one."""
    if isinstance(x, list | tuple):
        return any(map(_depends, x))
    return isinstance(x, Length)


def _traced(x: Any) -> Any:
    """A traced array in an argument, or None."""
    if isinstance(x, list | tuple):
        return next((t for t in map(_traced, x) if t is not None), None)
    return x if isinstance(x, Traced) else None


def _taken(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def take(*args: Any, **options: Any) -> Any:
        index = _traced(args[1] if len(args) > 1 else options.get("indices"))
        if index is None or isinstance(args[0] if args else options.get("a"), Traced):
            return original(*args, **options)
        return index.__array_function__(original, (type(index),), args, options)

    return take


def _sized(original: Callable[..., Any]) -> Callable[..., Any]:
    """A function that makes arrays, which may be as long as the batch."""
    make = sized_arrays.MAKERS[original]

    @wraps(original)
    def call(*args: Any, **options: Any) -> Any:
        session = open_session()
        if session is not None and not session.fixed:
            depends = any(map(_depends, args)) or any(map(_depends, options.values()))
            if depends and not any(isinstance(x, Traced) for x in args[:1]):
                made = sized_arrays.made(session, make, args, options)
                if made is not NotImplemented:
                    return made
        return original(*args, **options)

    return call


def _measured(original: Callable[[Any], int]) -> Callable[[Any], Any]:
    @wraps(original)
    def length(obj: Any, /) -> Any:
        return obj.length() if isinstance(obj, Traced) else original(obj)

    return length


def _drawing(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def draw(*args: Any, **options: Any) -> Any:
        session = open_session()
        if session is not None:
            session.note(
                "G0834",
                f"np.random.{name} draws once, while the step is traced: the numbers are constants",
                "write graphc.nn.random_normal(shape), graphc.nn.random_uniform(shape) or "
                "graphc.nn.dropout(x, rate), which draw in every step",
            )
        return original(*args, **options)

    return draw


_DRAWING = (
    "rand", "randn", "random", "random_sample", "randint", "normal", "uniform", "standard_normal",
    "permutation", "choice", "binomial", "exponential", "default_rng",
)  # fmt: skip


def _of_scipy(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def call(*args: Any, **options: Any) -> Any:
        given = _traced(args[:1])
        if given is None:
            return original(*args, **options)
        return given.apply(f"scipy.special.{name}", special.FUNCTIONS[name], args, options)

    return call


def _imported() -> dict[tuple[Any, str], Callable[..., Any]]:
    """Functions of scipy, if it was imported."""
    module = sys.modules.get("scipy.special")
    names = [name for name in special.FUNCTIONS if hasattr(module, name)]
    return {(module, name): _of_scipy(name, getattr(module, name)) for name in names}


_REPLACEMENTS: dict[tuple[Any, str], Callable[..., Any]] = {
    (np, "take"): _taken(np.take),
    (builtins, "len"): _measured(len),
    **{(np.random, name): _drawing(name, getattr(np.random, name)) for name in _DRAWING},
    **{(np, make.__name__): _sized(make) for make in sized_arrays.MAKERS},
}
_before: dict[tuple[Any, str], Callable[..., Any]] = {}  # what is replaced now


@contextmanager
def replaced() -> Iterator[None]:
    """Replace these functions inside the block."""
    global _open
    with _LOCK:
        _open += 1
        if _open == 1:
            for (module, name), function in {**_REPLACEMENTS, **_imported()}.items():
                _before[module, name] = getattr(module, name)
                setattr(module, name, function)
    try:
        yield
    finally:
        with _LOCK:
            _open -= 1
            if not _open:
                for (module, name), function in _before.items():
                    setattr(module, name, function)
                _before.clear()
