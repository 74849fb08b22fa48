"""What to say of an `optimizer=` that is none."""

from __future__ import annotations

from typing import Any

from graphc.ir.op import record_named, record_names
from graphc.ops.optimizers.optimizer import Optimizer, Transform
from graphc.support.errors import GraphcError, did_you_mean


def check_optimizer(given: Any) -> None:
    """Raise G0206 if this is neither a transform nor a list of them."""
    for x in given if isinstance(given, list | tuple) and type(given) in (list, tuple) else [given]:
        if x is not None and not isinstance(x, Transform):
            raise GraphcError("G0206", f"{_shown(x)} is not an optimizer", help=_help(x))


def _shown(x: Any) -> str:
    match x:
        case type():
            return f"the class {x.__module__.partition('.')[0]}.{x.__name__}"
        case str() | int() | float() | bool() | dict():
            return repr(x)[:60]
        case _:
            return f"a {type(x).__module__.partition('.')[0]}.{type(x).__name__}"


def _help(x: Any) -> str:
    known = [n for n in record_names() if issubclass(record_named(n) or int, Optimizer)]
    name = x if isinstance(x, str) else getattr(x, "__name__", type(x).__name__)
    name = name.lower()
    if isinstance(x, type) and issubclass(x, Transform):
        return f"call it: graphc.optim.{name}(1e-3)"
    if isinstance(x, int | float):
        return f"write graphc.optim.adam({x!r})"
    if name in known:
        return f"write graphc.optim.{name}(1e-3)"
    return did_you_mean(name, known) or "such as graphc.optim.adam(1e-3), or a list of transforms"
