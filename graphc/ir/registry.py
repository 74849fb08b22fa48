"""The composites by name: functions over primitives, for both front ends and for gradient rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

COMPOSITES: dict[str, Callable[..., Any]] = {}
UFUNCS: dict[str, str] = {}  # the name of a ufunc of NumPy -> the composite that it is
SCIPY_UFUNCS: dict[str, str] = {}  # the same of scipy.special
F = TypeVar("F", bound=Callable[..., Any])


class ArrayFunction(NamedTuple):
    """A function of NumPy that is a composite.

    signature is NumPy's, without defaults: `argsort(a, axis, kind, *, stable)`. Its first
    parameters are those of the composite, in order and with the same defaults; the others are
    accepted and have no influence. method: whether ndarray has a method of this name. view: whether
    NumPy's result shares memory with its operand.
    """

    composite: str
    signature: str
    method: bool
    view: bool


ARRAY_FUNCTIONS: list[ArrayFunction] = []


def composite(function: F) -> F:
    """Register `function(f, *operands, **options)` by its name, without a trailing underscore."""
    name = function.__name__.rstrip("_")
    assert name not in COMPOSITES, f"composite {name} is defined twice"
    assert function.__doc__, f"composite {name} has no docstring"
    COMPOSITES[name] = function
    return function


def ufunc(*names: str) -> Callable[[F], F]:
    """Declare which ufuncs of NumPy a composite is. A primitive's reference kernel says so."""

    def enter(function: F) -> F:
        UFUNCS.update(dict.fromkeys(names, function.__name__.rstrip("_")))
        return function

    return enter


def scipy_ufunc(*names: str) -> Callable[[F], F]:
    """Declare which ufuncs of scipy.special a composite is."""

    def enter(function: F) -> F:
        SCIPY_UFUNCS.update(dict.fromkeys(names, function.__name__))
        return function

    return enter


def array_function(*signatures: str, method: bool = False, view: bool = False) -> Callable[[F], F]:
    """Declare which other functions of NumPy a composite is: see `ArrayFunction`."""

    def enter(function: F) -> F:
        name = function.__name__.rstrip("_")
        ARRAY_FUNCTIONS.extend(ArrayFunction(name, s, method, view) for s in signatures)
        return function

    return enter
