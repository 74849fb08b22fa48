"""Expressions: what is known at compile time is computed, what is a tensor becomes nodes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphc.errors import GraphcError, Span
from graphc.frontend import syntax as s
from graphc.frontend.names import Builtin, Closure, Namespace, Scope, call_builtin
from graphc.graph import Builder, Value
from graphc.ops.composites.picking import getitem
from graphc.types import DType, Size

MAX_CALLS = 64  # nested calls of the program's own functions
MAX_NUMBER = 2**64  # a static integer beyond this is no size of anything

_STATIC_OPS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod, "**": operator.pow,
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_TENSOR_OPS: Mapping[str, str] = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "//": "floor_div", "%": "mod",
    "==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "and": "and", "or": "or",
}  # fmt: skip


class Evaluator:
    """Evaluates expressions into a builder. run_body runs a function's statements (see lower)."""

    def __init__(self, f: Builder, run_body: Callable[[s.Function, Scope], Any]) -> None:
        self.f, self.run_body = f, run_body
        self.calls = 0

    def evaluate(self, tree: Any, scope: Scope) -> Any:
        """The value of an expression: a tensor Value, or a number, string, list, dtype, record."""
        with self.f.at(tree.span):
            try:
                return self._evaluate(tree, scope)
            except GraphcError as error:
                raise error.at(tree.span) from None

    def _evaluate(self, tree: Any, scope: Scope) -> Any:
        match tree:
            case s.Name(id=name):
                return self.f.training if name == "training" else scope.find(name, tree.span)
            case s.Int(value=v) | s.Float(value=v) | s.Str(value=v) | s.Bool(value=v):
                return v
            case s.Null():
                return None
            case s.List(items=items):
                return [self.evaluate(x, scope) for x in items]
            case s.Tuple(items=items):
                return tuple(self.evaluate(x, scope) for x in items)
            case s.Map(entries=entries):
                return {self.evaluate(e.key, scope): self.evaluate(e.value, scope) for e in entries}
            case s.Unary(op=op, operand=operand):
                return self._unary(op, self.evaluate(operand, scope), tree.span)
            case s.Power(base=base, exponent=exponent):
                a, b = self.evaluate(base, scope), self.evaluate(exponent, scope)
                return self._power(a, b, tree.span)
            case s.Chain():
                return self._chain(tree, scope)
            case s.Conditional():
                chosen = self.static_bool(tree.condition, scope)
                return self.evaluate(tree.then if chosen else tree.otherwise, scope)
            case s.Call():
                return self._call(tree, scope)
            case s.Index():
                return self._index(tree, scope)
            case s.Attribute():
                return self._attribute(tree, scope)
            case _:
                raise AssertionError(f"no meaning for {type(tree).__name__}")

    # -- operators ------------------------------------------------------------------------------

    def _chain(self, tree: s.Chain, scope: Scope) -> Any:
        total = self.evaluate(tree.first, scope)
        for link in tree.links:
            with self.f.at(link.span):
                if link.op in ("and", "or") and isinstance(total, bool):
                    if total is (link.op == "or"):
                        return total
                    total = self.evaluate(link.operand, scope)
                    continue
                total = self.apply(link.op, total, self.evaluate(link.operand, scope), link.span)
        return total

    def apply(self, op: str, a: Any, b: Any, span: Span) -> Any:
        """`a op b`, as nodes where one of them is a tensor."""
        if not isinstance(a, Value) and not isinstance(b, Value):
            return self._static(op, a, b, span)
        for x in (a, b):
            if not isinstance(x, Value | bool | int | float):
                raise GraphcError("G0122", f"'{op}' does not work on {_kind(x)}", span=span)
        if op == "@":
            return self.f.matmul(a, b)
        return self.f.binary(_TENSOR_OPS[op], a, b)

    def _static(self, op: str, a: Any, b: Any, span: Span) -> Any:
        both = (_kind(a), _kind(b))
        if op not in _STATIC_OPS:
            raise GraphcError(
                "G0122", f"'{op}' does not work on {both[0]} and {both[1]}", span=span
            )
        if op in ("*", "**", "+") and any(isinstance(x, str | list | tuple) for x in (a, b)):
            same = type(a) is type(b) and op == "+"
            if not same or len(a) + len(b) > 1_000_000:
                message = f"'{op}' does not work on {both[0]} and {both[1]}"
                raise GraphcError("G0122", message, span=span)
        try:
            result = self._small_power(a, b, span) if op == "**" else _STATIC_OPS[op](a, b)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise GraphcError(
                "G0122", f"can't compute {a!r} {op} {b!r}: {error}", span=span
            ) from None
        if isinstance(result, int) and abs(result) > MAX_NUMBER:
            raise GraphcError("G0122", "a static number is too large", span=span)
        return result

    def _small_power(self, a: Any, b: Any, span: Span) -> Any:
        if isinstance(a, int) and isinstance(b, int) and b > 64 and abs(a) > 1:
            raise GraphcError("G0122", f"{a} ** {b} is too large a number", span=span)
        return a**b

    def _power(self, a: Any, b: Any, span: Span) -> Any:
        if isinstance(a, Value) or isinstance(b, Value):
            return self.f.power(a, b)
        return self._static("**", a, b, span)

    def _unary(self, op: str, x: Any, span: Span) -> Any:
        if isinstance(x, Value):
            return -x if op == "-" else self.f.not_(x)
        if op == "not" and isinstance(x, bool):
            return not x
        if op == "-" and isinstance(x, int | float) and not isinstance(x, bool):
            return -x
        raise GraphcError("G0122", f"'{op}' does not work on {_kind(x)}", span=span)

    # -- calls ----------------------------------------------------------------------------------

    def _call(self, tree: s.Call, scope: Scope) -> Any:
        function = self.evaluate(tree.function, scope)
        args = [self.evaluate(a.value, scope) for a in tree.arguments if a.name is None]
        options = {a.name: self.evaluate(a.value, scope) for a in tree.arguments if a.name}
        match function:
            case Closure():
                return self._call_closure(function, args, options, tree.span)
            case Builtin() | type():
                return call_builtin(self.f, function, args, options, tree.span)
            case _:
                message = f"{_kind(function)} can't be called"
                raise GraphcError("G0121", message, span=tree.function.span)

    def _call_closure(
        self, function: Closure, args: Sequence[Any], options: Mapping[str, Any], span: Span
    ) -> Any:
        inner = Scope(function.scope, self._bind(function, args, options, span))
        if self.calls >= MAX_CALLS:
            name = function.tree.name.id
            raise GraphcError("G0124", f"'{name}' calls itself without end", span=span)
        self.calls += 1
        try:
            with self.f.scope(function.tree.name.id):
                return self.run_body(function.tree, inner)
        finally:
            self.calls -= 1

    def _bind(
        self, function: Closure, args: Sequence[Any], options: Mapping[str, Any], span: Span
    ) -> dict[str, Any]:
        tree = function.tree
        names = [p.name.id for p in tree.parameters]
        bound = dict(zip(names, args, strict=False))
        wrong = [k for k in options if k not in names or k in bound]
        bound |= options
        for p in tree.parameters:
            if p.name.id not in bound and p.default is not None:
                bound[p.name.id] = self.evaluate(p.default, function.scope)
        missing = [n for n in names if n not in bound]
        if len(args) > len(names) or wrong or missing:
            shown = f"{tree.name.id}({', '.join(names)})"
            what = f"'{(wrong or missing)[0]}'" if wrong or missing else f"{len(args)} arguments"
            word = "is not given" if missing and not wrong else "is one too many"
            raise GraphcError("G0121", f"{shown}: {what} {word}", span=span)
        return bound

    # -- parts ----------------------------------------------------------------------------------

    def _index(self, tree: s.Index, scope: Scope) -> Any:
        value = self.evaluate(tree.value, scope)
        items = [self._index_item(i, scope) for i in tree.items]
        if isinstance(value, Value):
            return getitem(self.f, value, tuple(items))
        if isinstance(value, dict | list | tuple) and len(items) == 1:
            try:
                return value[items[0]]
            except (LookupError, TypeError):
                message = f"there is no [{items[0]!r}] in {_kind(value)} of {len(value)} entries"
                raise GraphcError("G0122", message, span=tree.span) from None
        raise GraphcError("G0122", f"{_kind(value)} can't be indexed", span=tree.span)

    def _index_item(self, tree: Any, scope: Scope) -> Any:
        match tree:
            case s.Dots():
                return Ellipsis
            case s.Slice(start=start, stop=stop, step=step):
                parts = [
                    self.evaluate(x, scope) if x is not None else None for x in (start, stop, step)
                ]
                return slice(*parts)
            case _:
                return self.evaluate(tree, scope)

    def _attribute(self, tree: s.Attribute, scope: Scope) -> Any:
        value = self.evaluate(tree.value, scope)
        match value, tree.name:
            case Namespace(members=members), name if name in members:
                return members[name]
            case dict(), name if name in value:
                return value[name]
            case Value(), "shape":
                return tuple(Size(n, value.type.extent(i)) for i, n in enumerate(value.shape))
            case Value(), "dtype":
                return value.dtype
            case Value(), "rank":
                return value.rank
            case Value(), "T":
                return self.f.transpose(value)
            case _:
                message = f"{_kind(value)} has no member '{tree.name}'"
                raise GraphcError("G0120", message, span=tree.span)

    # -- what must be known at compile time -----------------------------------------------------

    def static_bool(self, tree: Any, scope: Scope) -> bool:
        """The truth of a condition. Raises G0123 where it is a tensor."""
        value = self.evaluate(tree, scope)
        if isinstance(value, bool):
            return value
        raise GraphcError(
            "G0123",
            f"a condition must be known at compile time, but this is {_kind(value)}",
            span=tree.span,
            help="choose between tensors entry by entry with where(condition, a, b)",
        )

    def static_int(self, tree: Any, scope: Scope) -> int:
        """An integer known at compile time. Raises G0123."""
        value = self.evaluate(tree, scope)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        raise GraphcError("G0123", f"an integer is needed here, not {_kind(value)}", span=tree.span)


def _kind(x: Any) -> str:
    """What a value is, in words."""
    match x:
        case Value():
            return f"a tensor {x.type}"
        case bool():
            return "a truth value"
        case int() | float():
            return f"the number {x}"
        case str():
            return f'the string "{x}"'
        case list() | tuple():
            return "a list"
        case dict():
            return "a map"
        case None:
            return "none"
        case DType():
            return f"the dtype {x}"
        case Closure() | Builtin() | type():
            return "a function"
        case Namespace():
            return f"the file {x.name}"
        case _:
            return f"{type(x).__name__.lower()}(...)"
