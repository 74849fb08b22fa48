"""The register of handlers of NumPy functions, and what is known of them.

A handler is `(f, *args, **options)`: f is the Builder, the rest are the user's arguments, with
graph values in place of traced arrays. It returns values, or plain Python data. Its parameters have
NumPy's names, so that keywords work. `out=` is handled before it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np

Handler: TypeAlias = Callable[..., Any]
H = TypeVar("H", bound=Handler)

# Whether the result of a call shares memory: of the user's arguments, and the result.
SharesMemory: TypeAlias = Callable[[Sequence[Any], Mapping[str, Any], Any], bool]

TABLE: dict[Callable[..., Any], Handler] = {}  # array functions
UFUNCS: dict[np.ufunc, Handler] = {}  # ufuncs, called plainly: (f, *operands)
NAMES: dict[str, Handler] = {}  # all of them by the name after `np.`, whatever NumPy is here
METHODS: dict[str, Handler] = {}  # of ndarray
PROPERTIES: dict[str, Handler] = {}  # attributes of ndarray that make a new array
# Handlers of what writes into its first argument.
WRITING: set[Handler] = set()
# Handlers whose result may share the operand's memory in NumPy, and in which calls it does.
VIEWS: dict[Handler, SharesMemory] = {}
# Handlers that compute with the number of examples at run time, whatever numbers they are given,
COUNTING: set[Handler] = set()
# and those that do if it is a length of an array of the batch.
MEASURING: set[Handler] = set()


def always(args: Sequence[Any], options: Mapping[str, Any], result: Any) -> bool:
    """What is a view in every call."""
    return True


def find(name: str) -> Any:
    """The function `np.<name>`, or None if this version of NumPy does not have it."""
    member: Any = np
    for part in name.split("."):
        member = getattr(member, part, None)
    return member


def traces(
    *names: str, methods: tuple[str, ...] = (), view: bool | SharesMemory = False,
    measuring: bool = False,
) -> Callable[[H], H]:  # fmt: skip
    """Register a handler for NumPy functions, by name, and for methods of ndarray.

    view:      whether NumPy's result shares memory with its operand, or in which calls it does
    measuring: whether the batch size may be among the lengths that it takes or gives
    """

    def enter(handler: H) -> H:
        for name in names:
            NAMES[name] = handler
            if (function := find(name)) is not None:
                TABLE[function] = handler
        METHODS.update(dict.fromkeys(methods, handler))
        if view:
            VIEWS[handler] = always if view is True else view
        if measuring:
            MEASURING.add(handler)
        return handler

    return enter


def traces_ufunc(*names: str, methods: tuple[str, ...] = ()) -> Callable[[H], H]:
    """Register a handler for ufuncs by name; it is called with the operands only."""

    def enter(handler: H) -> H:
        for name in names:
            NAMES[name] = handler
            if (function := find(name)) is not None:
                UFUNCS[function] = handler
        METHODS.update(dict.fromkeys(methods, handler))
        return handler

    return enter


def name_of(function: Callable[..., Any]) -> str:
    """The name by which users call a function: `np.linalg.norm`."""
    module = getattr(function, "__module__", None) or "numpy"
    return f"np{module.removeprefix('numpy')}.{getattr(function, '__name__', function)}"
