"""Functions that do not ask their arguments, and that are others in a thread that traces.

NumPy dispatches a call to a traced array only for the arguments that a function declares: np.take
declares the table but not the indices, and np.zeros((n, 3)) nothing at all. So a thread that traces
a function finds others in their places, which also look for traced arrays, or for the run-time
length of the batch, in all arguments; for all else they are the originals.

Functions of a module are *attributes by thread*: while a trace runs, the module has a class with a
descriptor for each of them, and its dict stays as it is. So other threads get the originals, also
those that somebody has replaced, and what they import meanwhile is never one of ours. Names that
were imported before and Python's own functions are replaced in dicts (`imported_names`).
"""

from __future__ import annotations

import importlib
import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial, wraps
from inspect import signature
from threading import Lock
from types import ModuleType
from typing import Any

import numpy as np

from graphc.frontend.numpy import sized_arrays, special, table
from graphc.frontend.numpy.imported_names import ReplacedNames
from graphc.frontend.numpy.length import Length, Traced
from graphc.frontend.numpy.python_functions import python_makers
from graphc.frontend.numpy.session import open_session
from graphc.frontend.numpy.written_arrays import traced_from_start
from graphc.support.caller import looked_up_by_python

Function = Callable[..., Any]

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


def _taken(name: str, original: Function) -> Function:
    @wraps(original)
    def take(*args: Any, **options: Any) -> Any:
        index = _traced(args[1] if len(args) > 1 else options.get("indices"))
        if index is None or isinstance(args[0] if args else options.get("a"), Traced):
            return original(*args, **options)
        return index.__array_function__(original, (type(index),), args, options)

    return take


def _array(name: str, original: Function) -> Function:
    """np.array and its kin. np.asarray(x) is x, whose other names see what becomes of it."""

    @wraps(original)
    def array(*args: Any, **options: Any) -> Any:
        given = args[0] if args else options.pop("object" if name == "array" else "a", None)
        dtype = args[1] if len(args) > 1 else options.get("dtype")
        traced = _traced(given) if dtype not in (object, "O") else None
        if traced is None:
            return traced_from_start(original, None, (given, *args[1:]), options)
        same = given is traced and not traced.number and dtype in (None, traced.dtype)
        if same and name != "array":
            return given
        every = (given, *args[1:])
        return traced.__array_function__(original, (type(traced),), every, options)

    return array


def _sized(name: str, original: Function) -> Function:
    """A function that makes arrays, which may be as long as the batch."""
    make = sized_arrays.MAKERS[name]

    @wraps(original)
    def call(*args: Any, **options: Any) -> Any:
        session = open_session()
        if session is not None and not session.fixed:
            depends = any(map(_depends, args)) or any(map(_depends, options.values()))
            if depends and not any(isinstance(x, Traced) for x in args[:1]):
                made = sized_arrays.made(session, args, options, make)
                if made is not NotImplemented:
                    return made
        return traced_from_start(original, partial(sized_arrays.made, make=make), args, options)

    return call


def _like(name: str, original: Function) -> Function:
    """np.zeros_like and its kin, of an array of numbers."""

    @wraps(original)
    def call(*args: Any, **options: Any) -> Any:
        if _traced((*args, *options.values())) is not None:
            return original(*args, **options)
        return traced_from_start(original, None, args, options)

    return call


def _of_lists(name: str, original: Function) -> Function:
    """A function that NumPy dispatches for a traced array, but not for a list of traced values."""

    @wraps(original)
    def call(*args: Any, **options: Any) -> Any:
        if any(isinstance(x, list | tuple) and _traced(x) is not None for x in args):
            args = tuple(map(_joined, _arrays(original, len(args)), args))
        return original(*args, **options)

    return call


def _joined(wanted: bool, x: Any) -> Any:
    """A list of traced values as an array, if an array is wanted."""
    traced = _traced(x) if wanted and isinstance(x, list | tuple) else None
    return x if traced is None else traced.__array_function__(_ARRAY, (type(traced),), (x,), {})


_ARRAY = np.array  # itself: a thread that traces finds another one

# What NumPy calls an argument that is an array; one that is a sequence of arrays has other names.
_ONE_ARRAY = {"a", "arr", "array", "b", "m", "v", "x", "x1", "x2", "y", "A"}


@lru_cache(maxsize=256)
def _arrays(function: Function, count: int) -> list[bool]:
    """Which of the first arguments of a function are arrays, by their names."""
    try:
        names = [*signature(function).parameters][:count]
    except ValueError:  # it does not tell
        names = []
    return [name in _ONE_ARRAY for name in names] + [False] * (count - len(names))


def _dispatched(module: ModuleType) -> dict[str, Callable[[str, Function], Function]]:
    """The traced functions of a module that NumPy dispatches."""
    return {
        name: _of_lists
        for name, x in vars(module).items()
        if callable(x) and not isinstance(x, np.ufunc | type) and x in table.TABLE
    }


def _plain(x: Any) -> Any:
    """An argument with plain numbers in place of run-time lengths."""
    return operator.index(x) if isinstance(x, Length) else x


def _drawing(name: str, original: Function) -> Function:
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
        return original(*map(_plain, args), **{k: _plain(x) for k, x in options.items()})

    return draw


_DRAWING = (
    "rand", "randn", "random", "random_sample", "randint", "normal", "uniform", "standard_normal",
    "permutation", "choice", "binomial", "exponential", "default_rng",
)  # fmt: skip


def _of_scipy(name: str, original: Function) -> Function:
    @wraps(original)
    def call(*args: Any, **options: Any) -> Any:
        given = _traced(args[:1])
        if given is None:
            return original(*args, **options)
        return given.apply(f"scipy.special.{name}", special.FUNCTIONS[name], args, options)

    return call


# -- attributes by thread -------------------------------------------------------------------------


class _ByThread:
    """An attribute of a module: the module's own, or in a thread that traces, one made of it."""

    def __init__(
        self, name: str, make: Callable[[str, Function], Function], of_numpy: bool
    ) -> None:
        self._name, self._of_numpy = name, of_numpy
        self._made = lru_cache(maxsize=8)(lambda original: make(name, original))

    def __get__(self, module: ModuleType | None, owner: type | None = None) -> Any:
        if module is None:
            return self
        try:
            original = vars(module)[self._name]
        except KeyError:
            raise AttributeError(self._name) from None
        if open_session() is None:
            return original
        if self._of_numpy and not looked_up_by_python(sys._getframe(1)):
            return original
        return self._made(original)

    def __set__(self, module: ModuleType, value: Any) -> None:
        vars(module)[self._name] = value

    def __delete__(self, module: ModuleType) -> None:
        del vars(module)[self._name]


class _RandomModule:
    """np.random, which NumPy imports when it is first looked up: replaced from then on."""

    def __get__(self, module: ModuleType | None, owner: type | None = None) -> Any:
        if module is None:
            return self
        found = vars(module).get("random") or importlib.import_module("numpy.random")
        with _LOCK:
            if _now is not None and getattr(found, "__name__", "") in _MAKERS:
                _now.replace(found)
        return found

    def __set__(self, module: ModuleType, value: Any) -> None:
        vars(module)["random"] = value


_MAKERS: dict[str, dict[str, Callable[[str, Function], Function]]] = {
    "numpy.linalg": _dispatched(np.linalg),
    "numpy": {
        **_dispatched(np),
        "take": _taken,
        **dict.fromkeys(("array", "asarray", "asanyarray", "ascontiguousarray"), _array),
        **dict.fromkeys(sized_arrays.MAKERS, _sized),
        **dict.fromkeys(("zeros_like", "empty_like", "ones_like", "full_like", "copy"), _like),
    },
    "numpy.random": dict.fromkeys(_DRAWING, _drawing),
    "scipy.special": dict.fromkeys(special.FUNCTIONS, _of_scipy),  # if it was imported
}


@lru_cache(maxsize=32)
def _tracing(module: str, own: Any) -> Any:
    """The class that a module of class `own` has while a trace runs."""
    of_numpy = module == "numpy"
    makers = _MAKERS[module].items()
    attributes: dict[str, Any] = {n: _ByThread(n, make, of_numpy) for n, make in makers}
    if of_numpy:
        attributes["random"] = _RandomModule()
    return type(own.__name__, (own,), attributes)


def _normal(name: str, own: Any) -> Function:
    """A method of scipy.stats.norm that takes traced arrays, too."""

    def method(self: Any, *args: Any, **options: Any) -> Any:
        given = _traced((*args, *options.values()))
        if given is None:
            return getattr(own, name)(self, *args, **options)
        return given.apply(f"scipy.stats.norm.{name}", special.NORMAL[name], args, options)

    return method


@lru_cache(maxsize=8)
def _tracing_normal(own: Any) -> Any:
    """The class that scipy.stats.norm has while a trace runs."""
    return type(own.__name__, (own,), {name: _normal(name, own) for name in special.NORMAL})


@lru_cache(maxsize=4)
def _by_identity(modules: tuple[str, ...]) -> dict[int, Callable[[], Function]]:
    """What makes the functions that stand in for those of modules, by the identity of these."""
    return {
        id(original): partial(make, name, original)
        for module in modules
        for name, make in _MAKERS[module].items()
        if (original := vars(sys.modules[module]).get(name)) is not None
    }


class _Replaced:
    """What is replaced while a trace runs: the classes of modules and of norm, names that the user
    has imported from modules, and functions of Python."""

    def __init__(self) -> None:
        self._classes: list[tuple[Any, Any]] = []
        self._ours: set[Any] = set()
        loaded = tuple(name for name in _MAKERS if sys.modules.get(name) is not None)
        for name in loaded:
            self.replace(sys.modules[name])
        normal: Any = getattr(sys.modules.get("scipy.stats"), "norm", None)
        if normal is not None:
            self._classes.append((normal, type(normal)))
            normal.__class__ = _tracing_normal(self._classes[-1][1])
            self._ours.add(type(normal))
        self._names = ReplacedNames(_by_identity(loaded) | python_makers())

    def replace(self, module: ModuleType) -> None:
        """Replace the functions of a module, if that was not done."""
        own: Any = type(module)
        if own not in self._ours:
            self._classes.append((module, own))
            module.__class__ = _tracing(module.__name__, own)
            self._ours.add(type(module))

    def restore(self) -> None:
        """As it was; what somebody else has replaced meanwhile stays."""
        for thing, own in self._classes:
            if type(thing) in self._ours:
                thing.__class__ = own
        self._names.restore()


_now: _Replaced | None = None


@contextmanager
def replaced() -> Iterator[None]:
    """Replace these functions in this thread, inside of the block."""
    global _open, _now
    with _LOCK:
        _open += 1
        _now = _now or _Replaced()
    try:
        yield
    finally:
        with _LOCK:
            _open -= 1
            if not _open and _now is not None:
                _now.restore()
                _now = None
