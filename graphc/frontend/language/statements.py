"""The statements that steps and functions share: assignments, static loops and choices.

All of them are tasks (see graphc.frontend.language.evaluate).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from graphc.frontend.language.names import MISSING, Scope
from graphc.frontend.language.static import in_words, is_integer, truth
from graphc.ir.builder import Value
from graphc.support.errors import GraphcError
from graphc.syntax import tree as s

if TYPE_CHECKING:
    from graphc.frontend.language.evaluate import Evaluator
    from graphc.frontend.language.static import Task

Other = Callable[[s.Statement, Scope], None]


def run_function(evaluator: Evaluator, function: s.Function, scope: Scope) -> Task:
    """The value that a function returns; its parameters are bound in `scope`."""
    return run_block(evaluator, function.body, scope)


def run_block(
    evaluator: Evaluator, body: Iterable[s.Statement], scope: Scope, other: Other | None = None
) -> Task:
    """Run statements, with loops unrolled and branches chosen; gives the value that they return.

    other runs the statements that only a step may contain.
    """
    stack = [iter(body)]
    while stack:
        tree = next(stack[-1], None)
        if tree is not None:
            evaluator.spend(tree.span)
        match tree:
            case None:
                stack.pop()
            case s.Return(value=value):
                return (yield value, scope)
            case s.Assign():
                yield from _assign(evaluator, tree, scope)
            case s.For(items=items):
                stack.append(_turns(evaluator, tree, _listed((yield items, scope), items), scope))
            case s.If():
                stack.append(iter((yield from _chosen(tree, scope))))
            case _:
                assert other is not None, f"{type(tree).__name__} in a function"
                other(tree, scope)
    return None


def _chosen(tree: s.If, scope: Scope) -> Task:
    """The statements of the branch that is taken."""
    for branch in tree.branches:
        if truth((yield branch.condition, scope), branch.condition.span):
            return branch.body
    return tree.otherwise


# -- loops -----------------------------------------------------------------------------------------


def _listed(items: Any, tree: s.Expr) -> Sequence[Any]:
    """The items of a loop; of a family, its keys. Raises G0123."""
    if isinstance(items, list | tuple | dict):
        return list(items)
    message = f"a loop runs over a list that is known at compile time, not {in_words(items)}"
    raise GraphcError("G0123", message, span=tree.span, help="for i in range(3) { ... }")


def _turns(
    evaluator: Evaluator, tree: s.For, items: Sequence[Any], scope: Scope
) -> Iterator[s.Statement]:
    """The statements of all iterations, with the loop's names bound before each."""
    for item in items:
        evaluator.spend(tree.span)
        parts = [item] if len(tree.targets) == 1 else _parts(item, len(tree.targets), tree.items)
        scope.values.update({t.id: v for t, v in zip(tree.targets, parts, strict=True)})
        yield from tree.body


def _parts(value: Any, n: int, tree: s.Expr) -> Sequence[Any]:
    if isinstance(value, list | tuple) and len(value) == n:
        return value
    message = f"{in_words(value)} can't be unpacked into {n} names"
    raise GraphcError("G0122", message, span=tree.span)


# -- assignments -----------------------------------------------------------------------------------


def _assign(evaluator: Evaluator, tree: s.Assign, scope: Scope) -> Task:
    """Bind the targets. A node that was made by this statement gets the name of its target."""
    before = len(evaluator.f.nodes)
    value = yield tree.value, scope
    is_new = len(evaluator.f.nodes) > before  # in `y = x` the node is x's, and keeps its name
    one = len(tree.targets) == 1
    parts = [value] if one else _parts(value, len(tree.targets), tree.value)
    # A node that two parts share is not renamed: one of them would lose it.
    is_new = is_new and len({p.name for p in parts if isinstance(p, Value)}) == len(parts)
    for target, part in zip(tree.targets, parts, strict=True):
        path = yield from path_of(target, scope)
        if is_new and isinstance(part, Value):
            part = evaluator.f.rename(part, dotted(path))
        store(evaluator, target, path, part, scope)
    return None


def store(
    evaluator: Evaluator, target: s.Expr, path: Sequence[Any], value: Any, scope: Scope
) -> None:
    """Bind a name, or a member of a family, to a value. Raises G0108.

    A family is never changed but copied, so that another name for it keeps the old content.
    """
    name, *keys = path
    families: list[Any] = []
    member = scope.get(name) if keys else MISSING
    for key in keys:
        member = {} if member is MISSING else member
        if not isinstance(member, dict):
            message = f"'{dotted(path[: len(families) + 1])}' is {in_words(member)}, not a family"
            raise GraphcError("G0108", message, span=target.span)
        families.append(member)
        evaluator.spend(target.span, len(member) // 128)
        member = member.get(key, MISSING)
    for family, key in zip(reversed(families), reversed(keys), strict=True):
        value = {**family, key: value}
    scope.values[name] = value


def path_of(target: s.Expr, scope: Scope) -> Task:
    """`layers[i].w` as its name and its keys: `("layers", 0, "w")`. Raises G0108."""
    keys: list[Any] = []
    while True:
        match target:
            case s.Name(id=name):
                return (name, *reversed(keys))
            case s.Attribute(value=target, name=member):
                keys.append(member)
            case s.Index(value=target, items=items):
                for item in reversed(items):
                    keys.append(_key((yield item, scope), item))
            case _:
                raise GraphcError("G0108", "a name is needed here", span=target.span)


def _key(key: Any, tree: Any) -> Any:
    if is_integer(key) and key >= 0:
        return int(key)
    if isinstance(key, str) and key.isascii() and key.isidentifier() and len(key) <= 100:
        return key
    message = f"a member of a family is named by a number or an identifier, not {in_words(key)}"
    raise GraphcError("G0108", message, span=tree.span)


def dotted(path: Sequence[Any]) -> str:
    """The name of the variable at a path: `layers.0.w`."""
    return ".".join(map(str, path))
