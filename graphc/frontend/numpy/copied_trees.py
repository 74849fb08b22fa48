"""Trees that a trainer gives out: copies, of which no entry can be set by mistake.

`trainer.params["w"] = w` would change a copy that is dropped at once, and the training would go on
with the old values. A dict or a list of such a tree refuses it and says what to write.
"""

from __future__ import annotations

from typing import Any, NoReturn

from graphc.support.caller import user_span
from graphc.support.errors import GraphcError


def as_copy(tree: Any, name: str) -> Any:
    """The tree with its dicts and lists as such copies. name: params or state."""
    kind = type(tree)
    if kind is dict:
        return DictCopy(name, {key: as_copy(x, name) for key, x in tree.items()})
    if kind is list:
        return ListCopy(name, [as_copy(x, name) for x in tree])
    return tuple(as_copy(x, name) for x in tree) if kind is tuple else tree


def _refuse(self: Any, *arguments: Any, **options: Any) -> NoReturn:
    name = self.of
    raise GraphcError(
        "G0838",
        f"trainer.{name} is a copy: setting a part of it would change nothing",
        span=user_span(),
        help=f"edit a copy of your own, tree = copy.deepcopy(trainer.{name}), and set it: "
        f"trainer.{name} = tree",
    )


class DictCopy(dict[str, Any]):
    """A dict that is read only; its own copies, by any means, are dicts that can be written."""

    __slots__ = ("of",)

    def __init__(self, of: str, entries: dict[str, Any]) -> None:
        super().__init__(entries)
        self.of = of

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)

    __setitem__ = __delitem__ = __ior__ = _refuse
    update = pop = popitem = clear = setdefault = _refuse


class ListCopy(list[Any]):
    """The same of a list."""

    __slots__ = ("of",)

    def __init__(self, of: str, entries: list[Any]) -> None:
        super().__init__(entries)
        self.of = of

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = extend = insert = pop = remove = clear = sort = reverse = _refuse
