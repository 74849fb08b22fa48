"""A plugin of pytest that records which calls of functions graphc traces NumPy's own tests make,
and repeats them as steps when they are done.

    python -m pytest -p oracle.recorded_calls --pyargs numpy._core.tests.test_umath   (in tests/)

What is recorded has arrays of a few numbers in the dtypes of graphc, and options that a step can
have as constants.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import graphc.frontend.numpy.trace  # noqa: F401 - enters the functions that are traced
from graphc.frontend.numpy.handlers import NAMES

DTYPES = frozenset({"f4", "f8", "i4", "i8", "u1", "b1"})
LARGEST = 300  # entries of an array
SETS = 3  # of arrays, of calls that are alike
LEFT_OUT = frozenset({"out", "where", "subok"})  # options
WORDS = (bool, int, float, str, type(None))
TYPES = (np.float32, np.float64, np.int32, np.int64, np.uint8, bool, int, float)


@dataclass(frozen=True)
class Call:
    """A call of one of NumPy's functions."""

    name: str
    args: tuple[Any, ...]
    options: dict[str, Any]

    @property
    def arrays(self) -> list[Any]:
        return [a for a in self.args if type(a) is np.ndarray]

    @property
    def form(self) -> str:
        """What calls that are alike have in common."""
        parts = [*map(_form, self.args), *(f"{k}={_form(v)}" for k, v in self.options.items())]
        return f"{self.name}({', '.join(parts)})"

    def made(self, arrays: list[Any]) -> list[Any]:
        """The results of the call with other arrays."""
        given = iter(arrays)
        args = [next(given) if type(a) is np.ndarray else a for a in self.args]
        return [*_flat(function(self.name)(*args, **self.options))]


def function(name: str) -> Any:
    """NumPy's function of that name."""
    found: Any = np
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _form(x: Any) -> str:
    return f"{x.dtype.str[1:]}{list(x.shape)}" if type(x) is np.ndarray else repr(x)


def _flat(x: Any) -> Iterator[Any]:
    for y in x if isinstance(x, tuple | list) else ():
        yield from _flat(y)
    if not isinstance(x, tuple | list):
        yield x


def _is_plain(x: Any) -> bool:
    """Whether a step can have it as an input or as a constant."""
    if type(x) is np.ndarray:
        return x.dtype.isnative and x.dtype.str[1:] in DTYPES and x.size <= LARGEST
    if isinstance(x, tuple | list):
        return all(_is_plain(y) and type(y) is not np.ndarray for y in x)
    return not isinstance(x, np.generic) and (isinstance(x, WORDS) or any(x is t for t in TYPES))


class Recorder:
    """Takes the place of NumPy's functions, and notes their calls. calls: by their form"""

    def __init__(self) -> None:
        self.calls: dict[str, list[Call]] = {}
        self._inside = 0  # of calls that functions of NumPy make themselves
        self._replaced: list[tuple[Any, str, Any]] = []

    def begin(self) -> None:
        for name in sorted(NAMES):
            *path, last = name.split(".")
            try:
                module, inner = function(".".join(path)) if path else np, function(name)
            except AttributeError:  # of another version of NumPy
                continue
            if callable(inner) and not inspect.isclass(inner) and path != ["random"]:
                self._replaced.append((module, last, inner))
                setattr(module, last, _Watched(name, inner, self))

    def end(self) -> None:
        for module, name, inner in self._replaced:
            setattr(module, name, inner)

    def note(self, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        given = [*args, *options.values()]
        if self._inside or LEFT_OUT & options.keys() or not all(map(_is_plain, given)):
            return
        call = Call(name, tuple(a.copy() if type(a) is np.ndarray else a for a in args), options)
        alike = self.calls.setdefault(call.form, []) if call.arrays else [call] * SETS
        if len(alike) < SETS:
            alike.append(call)

    def run(self, inner: Callable[..., Any], args: Any, options: Any) -> Any:
        self._inside += 1
        try:
            return inner(*args, **options)
        finally:
            self._inside -= 1


class _Watched:
    """A function of NumPy whose calls are noted; all else of it is as it was."""

    __slots__ = ("_inner", "_name", "_recorder")

    def __init__(self, name: str, inner: Any, recorder: Recorder) -> None:
        self._name, self._inner, self._recorder = name, inner, recorder

    def __call__(self, *args: Any, **options: Any) -> Any:
        self._recorder.note(self._name, args, options)
        return self._recorder.run(self._inner, args, options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


RECORDER = Recorder()
RECORDER.begin()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    from oracle.replayed_calls import replayed

    RECORDER.end()
    counts: Counter[str] = replayed(RECORDER.calls.values())
    print("\nreplayed:", *(f"{k} {n}" for k, n in sorted(counts.items())), sep=" | ")
