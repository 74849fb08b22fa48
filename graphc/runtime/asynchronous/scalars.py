"""Scalars that several servers may keep and that no push writes: read and set at any time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphc.runtime.asynchronous.programs import ProgramStore
from graphc.support.errors import GraphcError


class StoreScalars:
    """The scalars of all servers. elsewhere: the driver that has the servers now, or ""."""

    def __init__(
        self, stores: Sequence[ProgramStore], check: Callable[[], None], changed: Callable[[], None]
    ) -> None:
        self._stores, self._check, self._changed = stores, check, changed
        self.elsewhere = ""

    def set(self, name: str, value: float) -> None:
        """Set a scalar: it counts from the next push and the next pull on. Raises G0563."""
        self._check()
        if self.elsewhere:
            text = f"the servers of {self.elsewhere} have '{name}' until this training ends"
            raise GraphcError("G0563", text, help="set it between two calls of fit")
        for store in self._stores:
            if name in store.names:
                store.engine.scalars.set(name, value)
        self._changed()

    def get(self, name: str) -> float:
        """The value of a scalar."""
        self._check()
        return next(s.engine.scalars.get(name) for s in self._stores if name in s.names)
