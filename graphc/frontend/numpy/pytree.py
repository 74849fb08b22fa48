"""Trees: nested dicts, lists, tuples, named tuples and dataclasses; leaves have dotted names.

`{"conv": {"w": w}, "layers": [a, b]}` has the leaves `conv.w`, `layers.0` and `layers.1`. None is a
tree without leaves. Anything else that is not a container is a leaf.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from graphc.support.errors import GraphcError

MAX_DEPTH = 100  # deeper is a tree that contains itself


@dataclass(frozen=True)
class Leaf:
    """A step of `build`: take the leaf of this name."""

    name: str


@dataclass(frozen=True)
class Join:
    """A step of `build`: make a container of the last `keys` results.

    kind, keys: what two trees of one form have in common
    """

    kind: type
    keys: tuple[str, ...]
    make: Callable[[list[Any]], Any] = dataclasses.field(compare=False, repr=False)


PathStep: TypeAlias = Leaf | Join


@dataclass(frozen=True)
class Structure:
    """The form of a tree: how to build it from its leaves. Trees of the same form have equal
    ones."""

    steps: tuple[PathStep, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the leaves, in order."""
        return tuple(s.name for s in self.steps if isinstance(s, Leaf))

    @property
    def is_flat(self) -> bool:
        """Whether the tree is a plain dict of leaves, so that it equals the dict of its leaves
        by name."""
        *leaves, last = self.steps
        if not isinstance(last, Join) or last.kind is not dict:
            return False
        return last.keys == self.names and len(leaves) == len(last.keys)

    def build(self, leaves: Mapping[str, Any]) -> Any:
        """The tree with these leaves, by name."""
        done: list[Any] = []
        for step in self.steps:
            match step:
                case Leaf(name):
                    done.append(leaves[name])
                case Join(_, keys, make):
                    first = len(done) - len(keys)
                    done[first:] = [make(done[first:])]
        return done[0]


def flatten(tree: Any, root: str) -> tuple[dict[str, Any], Structure]:
    """The leaves of `tree` by dotted name, in order, and its form.

    root names the leaves of a tree without names at its top (`batch`, `batch.0`). Raises G0806 for
    keys that are not names, for two leaves of one name, and for a tree that contains itself.
    """
    leaves: dict[str, Any] = {}
    steps: list[PathStep] = []
    work: list[tuple[str, int, Any]] = [("", 0, tree)]
    while work:
        path, depth, item = work.pop()
        if isinstance(item, Join):
            steps.append(item)
            continue
        parts = _parts(item, path or root)
        if parts is None:
            _add_leaf(leaves, path or root, item)
            steps.append(Leaf(path or root))
            continue
        if depth > MAX_DEPTH:
            raise GraphcError("G0806", f"'{path}' is nested too deeply: does it contain itself?")
        join, children, named = parts
        prefix = path if path or named else root
        work.append(("", 0, join))
        below = [
            (f"{prefix}.{key}" if prefix else key, depth + 1, child)
            for key, child in zip(join.keys, children, strict=True)
        ]
        work.extend(reversed(below))
    return leaves, Structure(tuple(steps))


def _add_leaf(leaves: dict[str, Any], name: str, item: Any) -> None:
    if name in leaves:
        raise GraphcError("G0806", f"two leaves are called '{name}'")
    leaves[name] = item


def _parts(item: Any, path: str) -> tuple[Join, list[Any], bool] | None:
    """A container's join, its children and whether it names them; None for a leaf."""
    kind = type(item)
    match item:
        case None:
            return Join(kind, (), lambda _: None), [], True
        case dict():
            keys = tuple(_key(k, path) for k in item)
            names = list(item)
            return (
                Join(kind, keys, lambda xs: dict(zip(names, xs, strict=True))),
                [*item.values()],
                True,
            )
        case tuple() if _is_namedtuple(kind):
            return Join(kind, kind._fields, lambda xs: kind(*xs)), list(item), True
        case list() | tuple() if kind in (list, tuple):
            return Join(kind, tuple(map(str, range(len(item)))), kind), list(item), False
        case _ if dataclasses.is_dataclass(kind) and not isinstance(item, type):
            return _dataclass_parts(item)
        case _:
            return None


def _dataclass_parts(item: Any) -> tuple[Join, list[Any], bool] | None:
    if type(item) in _LEAVES:
        return None
    names = tuple(f.name for f in dataclasses.fields(item))
    children = [getattr(item, name) for name in names]

    def make(xs: list[Any]) -> Any:
        # A fresh object without __init__, which may have checks that traced values do not pass.
        instance = object.__new__(type(item))
        for name, x in zip(names, xs, strict=True):
            object.__setattr__(instance, name, x)
        return instance

    return Join(type(item), names, make), children, True


_LEAVES: set[type] = set()


def leaf(kind: type) -> type:
    """Make instances of a dataclass leaves of a tree, not containers."""
    _LEAVES.add(kind)
    return kind


def _is_namedtuple(kind: type) -> bool:
    return isinstance(getattr(kind, "_fields", None), tuple)


def _key(key: object, path: str) -> str:
    match key:
        case str() if key:
            return key
        case int() if not isinstance(key, bool):
            return str(key)
        case _:
            raise GraphcError(
                "G0806", f"'{path}' has the key {key!r}", help="keys are strings or integers"
            )
