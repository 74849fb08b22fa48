"""What names mean: scopes of the program, and below them the built-in functions and records."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import graphc.ops  # noqa: F401  registers the ops, composites and records
from graphc.errors import GraphcError, Span, did_you_mean
from graphc.frontend import syntax as s
from graphc.graph import Builder, Value
from graphc.op import all_ops, op_named, record_named, record_names
from graphc.ops import COMPOSITES
from graphc.types import DTYPES, Size


@dataclass(frozen=True)
class Closure:
    """A function of the program, with the names that it was defined among."""

    tree: s.Function
    scope: Scope


@dataclass(frozen=True)
class Namespace:
    """An imported file: `nn.dense`."""

    name: str
    members: Mapping[str, Any]


@dataclass(frozen=True)
class Builtin:
    """A function of graphc: `call(builder, *args, **options)`."""

    name: str
    call: Callable[..., Any]


@dataclass
class Scope:
    """Names and their values; what is not here is looked for in `outer`."""

    outer: Scope | None = None
    values: dict[str, Any] = field(default_factory=dict)

    def find(self, name: str, span: Span) -> Any:
        """The value of a name: the program's own, else a built-in. Raises G0120."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        found = builtin(name)
        if found is None:
            known = tuple(dict.fromkeys([*self.names(), *builtin_names()]))
            hint = did_you_mean(name, known) or "define it with `fn`, `const` or an assignment"
            raise GraphcError("G0120", f"there is no '{name}' here", span=span, help=hint)
        return found

    def names(self) -> Iterator[str]:
        """All names of the program that can be seen from here, nearest first."""
        scope: Scope | None = self
        while scope is not None:
            yield from scope.values
            scope = scope.outer


def builtin(name: str) -> Any:
    """The built-in thing of that name: a function, a record class, a dtype; or None."""
    if name in _STATIC:
        return Builtin(name, _STATIC[name])
    if name in COMPOSITES:
        return Builtin(name, COMPOSITES[name])
    if name in DTYPES:
        return DTYPES[name]
    if name in _elementwise():
        return Builtin(name, _elementwise_call(name))
    return record_named(name)


def builtin_names() -> list[str]:
    """Every name that `builtin` knows."""
    return [*_STATIC, *COMPOSITES, *DTYPES, *_elementwise(), *record_names()]


def _elementwise() -> list[str]:
    return [n for n, op in all_ops().items() if op.elementwise and not fields(op)]  # type: ignore[arg-type]


def _elementwise_call(name: str) -> Callable[..., Any]:
    """An elementwise op as a function of tensors and numbers, with broadcasting."""
    arity = getattr(op_named(name), "arity", 1)
    if arity == 2:
        return lambda f, a, b: f.binary(name, a, b)
    return lambda f, x: getattr(f, name)(f.lift(x))


# -- functions that are evaluated at compile time --------------------------------------------------

MAX_RANGE = 100_000


def _range(f: Builder, *bounds: int) -> range:
    made = range(*bounds)
    if len(made) > MAX_RANGE:
        raise GraphcError("G0123", f"a static loop has at most {MAX_RANGE} turns, not {len(made)}")
    return made


def _len(f: Builder, x: Any) -> int:
    if isinstance(x, Value):
        return Size(x.shape[0], x.type.extent(0)) if x.rank else _no_len()
    return len(x)


def _no_len() -> int:
    raise GraphcError("G0205", "a scalar has no length")


def _zip(f: Builder, *lists: Any) -> list[tuple[Any, ...]]:
    if len({len(x) for x in lists}) > 1:
        raise GraphcError("G0123", f"zip of lists of lengths {[len(x) for x in lists]}")
    return list(zip(*lists, strict=True))


_STATIC: dict[str, Callable[..., Any]] = {
    "range": _range,
    "len": _len,
    "zip": _zip,
    "enumerate": lambda f, items: list(enumerate(items)),
}


# -- calling ---------------------------------------------------------------------------------------


def call_builtin(
    f: Builder, function: Any, args: list[Any], options: dict[str, Any], span: Span
) -> Any:
    """Call a built-in function or make a record. Raises G0121 where the arguments do not fit."""
    target = function.call if isinstance(function, Builtin) else function
    lead = [f] if isinstance(function, Builtin) else []
    name = function.name if isinstance(function, Builtin) else _record_name(function)
    try:
        inspect.signature(target).bind(*lead, *args, **options)
    except TypeError as error:
        shown = signature_of(name, target, bool(lead))
        message = f"{name}: {error}"
        raise GraphcError("G0121", message, span=span, help=f"write {shown}") from None
    try:
        return target(*lead, *args, **options)
    except GraphcError as error:
        raise error.at(span) from None
    except (TypeError, ValueError, AttributeError, IndexError, KeyError, OverflowError) as error:
        message = f"{name} does not take these arguments: {error}"
        shown = signature_of(name, target, bool(lead))
        raise GraphcError("G0121", message, span=span, help=f"write {shown}") from None


def signature_of(name: str, target: Any, method: bool) -> str:
    """`softmax(x, axis=-1)`: a function's parameters without annotations."""
    parameters = list(inspect.signature(target).parameters.values())[1 if method else 0 :]
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    return f"{name}({', '.join(map(str, plain))})"


def _record_name(cls: Any) -> str:
    from graphc.op import snake

    return snake(cls.__name__)
