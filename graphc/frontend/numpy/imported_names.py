"""Names of functions that a trace replaces in dicts: Python's `len`, and `from numpy import zeros`.

While a trace runs, `np.zeros` is another function for the thread that traces (see `undispatched`),
since it is looked up in the module then. A name that was imported before is an entry of the dict of
the user's own module, and `len` one of Python's. So these entries are replaced meanwhile, for all
threads: what replaces them does what the original does where nothing is traced.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator, Mapping, Set
from types import ModuleType
from typing import Any, TypeAlias

from graphc.support.caller import is_users_file, user_frame

Replace: TypeAlias = Callable[[], Callable[..., Any]]


_NEVER = sys.stdlib_module_names | {"graphc", "numpy"}


class ReplacedNames:
    """The entries that are replaced, until they are restored.

    makers: what makes the function that replaces another one, by the identity of that one
    """

    def __init__(self, makers: Mapping[int, Replace]) -> None:
        self._entries: list[tuple[dict[str, Any], str, Any, Any]] = []
        made: dict[int, Callable[..., Any]] = {}
        for names in (vars(builtins), *_dicts_of_the_user(makers.keys())):
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
        known = _KNOWN.get(path)
        if known is None or known.module is not module:
            known = _KNOWN[path] = _Module(module, _is_users(path, module))
        if known.users and known.may_have(wanted) and known.names is not caller:
            yield known.names


class _Module:
    """A module that was looked through. names: its dict"""

    def __init__(self, module: Any, users: bool) -> None:
        self.module, self.users = module, users
        self.names: dict[str, Any] = vars(module) if users else {}
        self._length, self._has = -1, False

    def may_have(self, wanted: Set[int]) -> bool:
        """Whether it has such objects. There may be thousands of modules, and a trace takes a
        millisecond: so only those with more or fewer names than before are looked through again."""
        if len(self.names) != self._length:
            self._length, self._has = len(self.names), _has(self.names, wanted)
        return self._has


_KNOWN: dict[str, _Module] = {}  # by their paths


def _is_users(path: str, module: Any) -> bool:
    file = getattr(module, "__file__", None)
    known = path.partition(".")[0] not in _NEVER and isinstance(file, str)
    return known and isinstance(module, ModuleType) and is_users_file(str(file))


def _has(names: dict[str, Any], wanted: Set[int]) -> bool:
    return not wanted.isdisjoint(map(id, list(names.values())))


__all__ = ["ReplacedNames"]
