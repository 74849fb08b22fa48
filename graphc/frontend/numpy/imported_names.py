"""`from numpy import zeros`: names in the user's modules for functions that a trace replaces.

While a trace runs, `np.zeros` is another function for the thread that traces (see `undispatched`),
since it is looked up in the module then. A name that was imported before is an entry of the dict of
the user's own module. So these entries are replaced meanwhile, for all threads: what replaces them
does what NumPy's function does where nothing is traced.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any, TypeAlias

from graphc.support.caller import is_users_file, user_frame

Replace: TypeAlias = Callable[[], Callable[..., Any]]


_NEVER = sys.stdlib_module_names | {"graphc", "numpy"}


class ImportedNames:
    """The entries that are replaced, until they are restored.

    makers: what makes the function that replaces another one, by the identity of that one
    """

    def __init__(self, makers: Mapping[int, Replace]) -> None:
        self._entries: list[tuple[dict[str, Any], str, Any, Any]] = []
        made: dict[int, Callable[..., Any]] = {}
        for names in _dicts_of_the_user(makers.keys()):
            for name, own in list(names.items()):
                if id(own) in makers:
                    ours = made[id(own)] = made.get(id(own)) or makers[id(own)]()
                    names[name] = ours
                    self._entries.append((names, name, own, ours))

    def restore(self) -> None:
        """As it was; what somebody else has written there meanwhile stays."""
        for names, name, own, ours in self._entries:
            if names.get(name) is ours:
                names[name] = own


def _dicts_of_the_user(wanted: Set[int]) -> Iterator[dict[str, Any]]:
    """The dicts of the user's modules, and of the code that calls graphc, that have an object of
    some identity: a notebook's module has no file, and what `exec` runs no module."""
    frame = user_frame()
    caller = {} if frame is None else frame.f_globals
    if _has(caller, wanted):
        yield caller
    for path, module in list(sys.modules.items()):
        if path.partition(".")[0] in _NEVER:  # most modules: a question that takes little time
            continue
        names, file = getattr(module, "__dict__", {}), getattr(module, "__file__", None)
        if file is None or names is caller or not _has(names, wanted):
            continue
        if is_users_file(str(file)):
            yield names


def _has(names: dict[str, Any], wanted: Set[int]) -> bool:
    return not wanted.isdisjoint(map(id, list(names.values())))


__all__ = ["ImportedNames"]
