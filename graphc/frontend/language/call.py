"""Calls of built-in functions and of records.

Arguments are bound and checked against the annotations of what is called before it is called, so
that a mistake is reported in the words of the program.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import lru_cache
from types import UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

from graphc.frontend.language.names import Builtin
from graphc.frontend.language.static import in_words
from graphc.frontend.operands import operand
from graphc.frontend.run_time_length import Count, Derived
from graphc.ir.builder import Builder, Value
from graphc.ir.op import snake
from graphc.ir.registry import COMPOSITES
from graphc.ir.types import Size
from graphc.ir.value import InGraph
from graphc.support.dataclass import dataclass
from graphc.support.errors import GraphcError
from graphc.text.fields import fits

if TYPE_CHECKING:
    from graphc.syntax import tree as s

MAX_ARGUMENT = 10_000  # entries of a list, characters of a string


@dataclass(frozen=True)
class Form:
    """What a function takes: its parameters, and the type of each by name."""

    name: str
    target: Callable[..., Any]
    lead: int  # parameters before the program's own: the builder
    signature: inspect.Signature
    kinds: Mapping[str, Any]

    def __str__(self) -> str:
        """`softmax(x, axis=-1)`"""
        own = list(self.signature.parameters.values())[self.lead :]
        plain = [p.replace(annotation=inspect.Parameter.empty) for p in own]
        return f"{self.name}({', '.join(map(str, plain))})"

    def error(self, message: str) -> GraphcError:
        return GraphcError("G0121", f"{self.name}: {message}", help=f"write {self}")


def call_builtin(f: Builder, function: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Call a built-in function, or make a record. Raises G0121 if the arguments do not fit."""
    form = form_of(function)
    try:
        bound = form.signature.bind(*[f] * form.lead, *args, **options)
    except TypeError as error:
        raise form.error(str(error)) from None
    like = next((x.dtype for x in (*args, *options.values()) if isinstance(x, Value)), None)
    for name, value in list(bound.arguments.items())[form.lead :]:
        several = form.signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
        kind = form.kinds.get(name, Any)
        for x in value if several else (value,):
            _check(form, name, x, kind)
        if not several:
            bound.arguments[name] = handed_over(f, value, kind, like)
    inside = f.calls.composite(form.name) if form.name in COMPOSITES else nullcontext()
    try:
        with inside:
            result = form.target(*bound.args, **bound.kwargs)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise form.error(f"it does not take these arguments ({error})") from None
    return _counted(result)


@lru_cache(maxsize=1024)
def form_of(function: Any) -> Form:
    if isinstance(function, Builtin):
        target, name, lead = function.call, function.name, 1
    else:
        target, name, lead = function, snake(function.__name__), 0
    return Form(name, target, lead, inspect.signature(target), get_type_hints(target))


def _counted(result: Any) -> Any:
    """A run-time length as a number that remembers how it is computed."""
    if isinstance(result, Size) and result.extent and not isinstance(result, Count):
        return Count(int(result), result.extent)
    return result


# -- arguments -------------------------------------------------------------------------------------


def _check(form: Form, name: str, x: Any, kind: Any) -> None:
    if isinstance(x, list | tuple | str) and len(x) > MAX_ARGUMENT:
        raise form.error(f"{name} has more than {MAX_ARGUMENT:,} entries")
    if not fits(_tupled(x) if not form.lead else x, kind):
        raise form.error(f"{name} is {in_words(x)}, but it takes {kind_in_words(kind)}")


def _tupled(x: Any) -> Any:
    """The lists of a program as tuples, which the fields of records hold."""
    return tuple(x) if isinstance(x, list) else x


def handed_over(f: Builder, x: Any, kind: Any, like: Any) -> Any:
    """The argument as the function takes it: a number that was computed from run-time counts
    becomes a tensor if the parameter accepts one."""
    if isinstance(x, Derived) and _may_be_tensor(kind):
        return as_operand(f, x, like)
    if isinstance(x, list | tuple) and any(isinstance(item, Derived) for item in x):
        inner = next((k for k in _alternatives(kind) if get_origin(k) is not None), None)
        if inner is not None and _may_be_tensor(get_args(inner)[0]):
            return [as_operand(f, item, like) for item in x]
    return x


def as_operand(f: Builder, x: Any, like: Any) -> Any:
    """A number as an operand beside tensors of dtype `like` (a dtype, a Value, or None)."""
    if not isinstance(x, Derived):
        return x
    try:
        return operand(f, x, like.dtype if isinstance(like, Value) else like)
    except RecursionError:
        message = "a number is computed from the batch's length in too many steps"
        raise GraphcError("G0122", message) from None


def _may_be_tensor(kind: Any) -> bool:
    return Value in _alternatives(kind)


def _alternatives(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


# -- words -----------------------------------------------------------------------------------------

_WORDS = {
    Value: "a tensor", int: "an integer", float: "a number", bool: "a truth value",
    str: "a string", type(None): "none", InGraph: "a tensor",
}  # fmt: skip


def kind_in_words(kind: Any) -> str:
    """An annotation in words: `a tensor or a number`, `an integer or a list of integers`."""
    kinds = _alternatives(kind)
    if float in kinds:
        kinds = tuple(k for k in kinds if k not in (int, bool))
    words = dict.fromkeys(_one_kind(k) for k in kinds)
    return " or ".join(words)


def _one_kind(kind: Any) -> str:
    if get_origin(kind) is not None:
        inner = kind_in_words(get_args(kind)[0])
        plain = inner.removeprefix("an ").removeprefix("a ")
        return f"a list of {plain}s" if " or " not in inner else f"a list, each {inner}"
    name = getattr(kind, "__name__", str(kind))
    return _WORDS.get(kind, f"a {snake(name)}" if name != "DType" else "a dtype")


# -- the program's own functions -------------------------------------------------------------------


def takes(function: s.Function, message: str) -> GraphcError:
    """G0121 for a call that does not fit a function that the program defines."""
    name = function.name.id
    parts = [p.name.id + ("=..." if p.default is not None else "") for p in function.parameters]
    label = ((function.span, "it is defined here"),)
    return GraphcError(
        "G0121", f"'{name}' {message}", labels=label, help=f"write {name}({', '.join(parts)})"
    )
