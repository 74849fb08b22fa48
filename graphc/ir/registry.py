"""The composites by name: functions over primitives that both front ends and the rules may call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

COMPOSITES: dict[str, Callable[..., Any]] = {}
F = TypeVar("F", bound=Callable[..., Any])


def composite(function: F) -> F:
    """Make `function(f, *operands, **options)` known by its name, without a trailing underscore."""
    name = function.__name__.rstrip("_")
    assert name not in COMPOSITES, f"composite {name} is defined twice"
    assert function.__doc__, f"composite {name} has no docstring"
    COMPOSITES[name] = function
    return function
