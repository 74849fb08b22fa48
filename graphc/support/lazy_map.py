"""A mapping whose values are made when they are first asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

T = TypeVar("T")


class LazyMap(Mapping[str, T]):
    """A mapping of names to values, each made by a function on first use, once.

    All names are known from the start. It equals any mapping with the same content.
    """

    def __init__(
        self,
        ready: Mapping[str, T],
        waiting: Mapping[str, Callable[[], T]],
        names: tuple[str, ...] = (),
    ) -> None:
        self._made, self._waiting = dict(ready), dict(waiting)
        self._names = names or (*ready, *waiting)
        self._lock = threading.RLock()  # a thing may need another one

    def __getitem__(self, name: str) -> T:
        value = self._made.get(name)
        if value is not None:
            return value
        with self._lock:
            if name not in self._made:
                self._made[name] = self._waiting[name]()
                del self._waiting[name]
            return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __repr__(self) -> str:
        return f"LazyMap({', '.join(self._names)}; made: {', '.join(self._made)})"

    @property
    def existing(self) -> dict[str, T]:
        """The entries whose values exist by now."""
        with self._lock:
            return {name: self._made[name] for name in self._names if name in self._made}


def existing(things: Mapping[str, T]) -> Mapping[str, T]:
    """The entries of any mapping whose values exist by now: of a plain one, all."""
    return things.existing if isinstance(things, LazyMap) else things


def chosen(things: Mapping[str, T], keep: Callable[[str], bool]) -> Mapping[str, T]:
    """The entries whose names pass, still lazy: a value is made on first use, once for both
    mappings."""
    if not isinstance(things, LazyMap):
        return {name: x for name, x in things.items() if keep(name)}
    ready = things.existing
    names = tuple(filter(keep, things))
    waiting = {n: _of(things, n) for n in names if n not in ready}
    return LazyMap({n: ready[n] for n in names if n in ready}, waiting, names)


def _of(things: Mapping[str, T], name: str) -> Callable[[], T]:
    return lambda: things[name]


def joined(*parts: Mapping[str, T]) -> Mapping[str, T]:
    """All entries of several mappings in one, still lazy."""
    names = [(name, part) for part in parts for name in part]
    ready = {name: existing(part)[name] for name, part in names if name in existing(part)}
    waiting = {name: _of(part, name) for name, part in names if name not in ready}
    return LazyMap(ready, waiting, tuple(name for name, _ in names)) if waiting else ready


def renamed(things: Mapping[str, T], old: str, new: str) -> Mapping[str, T]:
    """The entries `old`, `old.x`, ... under the names `new`, `new.x`, ..., still lazy."""
    names = {x: new + x.removeprefix(old) for x in things}
    ready = {names[x]: value for x, value in existing(things).items()}
    waiting = {name: _of(things, x) for x, name in names.items() if name not in ready}
    return LazyMap(ready, waiting, tuple(names.values())) if waiting else ready
