"""The statements that steps and functions share: assignments, static loops and choices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from graphc.errors import GraphcError
from graphc.frontend import syntax as s
from graphc.frontend.evaluate import Evaluator
from graphc.frontend.names import Scope
from graphc.graph import Value


def run_function(evaluator: Evaluator, function: s.Function, scope: Scope) -> Any:
    """The value that a function returns, its parameters bound in `scope`."""
    result = _run(evaluator, function.body, scope)
    assert result is not None, "a function without a return passed the checks"
    return result[0]


def _run(evaluator: Evaluator, body: Iterable[s.Statement], scope: Scope) -> tuple[Any] | None:
    """The value that these statements return, in a box; None where they return none.

    Recurses into blocks only, whose nesting the parser caps.
    """
    for tree in body:
        match tree:
            case s.Return(value=value):
                return (evaluator.evaluate(value, scope),)
            case s.Assign():
                assign(evaluator, tree, scope)
            case s.For():
                for values in loop_values(evaluator, tree, scope):
                    scope.values.update(values)
                    _run(evaluator, tree.body, scope)
            case s.If():
                if (result := _run(evaluator, chosen(evaluator, tree, scope), scope)) is not None:
                    return result
            case _:
                raise AssertionError(f"{type(tree).__name__} in a function")
    return None


def chosen(evaluator: Evaluator, tree: s.If, scope: Scope) -> tuple[s.Statement, ...]:
    """The statements of the branch that is taken."""
    for branch in tree.branches:
        if evaluator.static_bool(branch.condition, scope):
            return branch.body
    return tree.otherwise


def loop_values(evaluator: Evaluator, tree: s.For, scope: Scope) -> Iterable[dict[str, Any]]:
    """The names that each turn of a static loop binds. Raises G0123."""
    items = evaluator.evaluate(tree.items, scope)
    if not isinstance(items, list | tuple | range | dict):
        message = "a loop runs over a list that is known at compile time"
        hint = "for i in range(3) { ... }"
        raise GraphcError("G0123", message, span=tree.items.span, help=hint)
    for item in items:
        yield _unpacked(tree.targets, item, tree.span)


def _unpacked(targets: tuple[Any, ...], value: Any, span: Any) -> dict[str, Any]:
    if len(targets) == 1:
        return {targets[0].id: value}
    if not isinstance(value, list | tuple) or len(value) != len(targets):
        raise GraphcError("G0122", f"this has not {len(targets)} parts", span=span)
    return {t.id: v for t, v in zip(targets, value, strict=True)}


def assign(evaluator: Evaluator, tree: s.Assign, scope: Scope) -> None:
    """Bind the targets; a new node takes the name that the program gives it."""
    before = len(evaluator.f.nodes)
    value = evaluator.evaluate(tree.value, scope)
    made = len(evaluator.f.nodes) > before  # in `y = x` the node is x's, and keeps its name
    if len(tree.targets) == 1:
        store(evaluator, tree.targets[0], value, scope, rename=made)
        return
    if not isinstance(value, list | tuple) or len(value) != len(tree.targets):
        raise GraphcError("G0122", f"this has not {len(tree.targets)} parts", span=tree.value.span)
    distinct = len({p.name for p in value if isinstance(p, Value)}) == len(value)
    for target, part in zip(tree.targets, value, strict=True):
        store(evaluator, target, part, scope, rename=made and distinct)


def store(evaluator: Evaluator, target: Any, value: Any, scope: Scope, rename: bool = True) -> None:
    """Bind a name, or a member of a family (`w[i]`, `enc.w`), to a value.

    rename: a node that was just made takes the target's name; nothing else may refer to it.
    """
    if rename and isinstance(value, Value):
        value = evaluator.f.rename(value, target_name(evaluator, target, scope))
    name, keys = _path(evaluator, target, scope)
    if not keys:
        scope.values[name] = value
        return
    family = scope.values.setdefault(name, {})
    for key in keys[:-1]:
        family = family.setdefault(key, {}) if isinstance(family, dict) else family
    if not isinstance(family, dict):
        raise GraphcError("G0108", f"'{name}' is no family of values", span=target.span)
    family[keys[-1]] = value


def _path(evaluator: Evaluator, target: Any, scope: Scope) -> tuple[str, list[Any]]:
    """`layers[i].w` as its name and its keys."""
    keys: list[Any] = []
    while True:
        match target:
            case s.Name(id=name):
                return name, keys[::-1]
            case s.Attribute(value=target, name=member):
                keys.append(member)
            case s.Index(value=target, items=items):
                keys += [evaluator.evaluate(i, scope) for i in reversed(items)]
            case _:
                raise GraphcError("G0108", "this can't be assigned to", span=target.span)


def target_name(evaluator: Evaluator, target: Any, scope: Scope) -> str:
    """The variable's name: `w`, `w.0` for `w[0]`, `enc.w`."""
    match target:
        case s.Name(id=name):
            return name
        case s.Attribute(value=value, name=name):
            return f"{target_name(evaluator, value, scope)}.{name}"
        case s.Index(value=value, items=items):
            keys = [str(evaluator.evaluate(i, scope)) for i in items]
            return ".".join([target_name(evaluator, value, scope), *keys])
        case _:
            raise GraphcError("G0108", "a name is needed here", span=target.span)
