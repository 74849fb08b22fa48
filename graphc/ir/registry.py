"""The composites by name: functions over primitives, for both front ends and for gradient rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

COMPOSITES: dict[str, Callable[..., Any]] = {}
UFUNCS: dict[str, str] = {}  # the name of a ufunc of NumPy -> the composite that it is
F = TypeVar("F", bound=Callable[..., Any])


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
