"""Scalars that several servers may keep and that no push writes: read and set at any time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from graphc.runtime.asynchronous.programs import ProgramStore
from graphc.support.errors import GraphcError


class StoreScalars:
    """The scalars of all servers.

    ready:     a context, inside of which they can be read and set
    elsewhere: the driver that has the servers now, or ""
    traced:    whether the run under way is `recorded` or `replayed`, or ""
    """

    def __init__(
        self, stores: Sequence[ProgramStore], ready: Callable[[], AbstractContextManager[None]],
        changed: Callable[[], None],
    ) -> None:  # fmt: skip
        self._stores, self._ready, self._changed = stores, ready, changed
        self.elsewhere = self.traced = ""

    @contextmanager
    def fixed(self, traced: str) -> Iterator[None]:
        """A run, in which no scalar is set if it is recorded or replayed: nothing says from which
        push on it would count."""
        self.traced = traced
        try:
            yield
        finally:
            self.traced = ""

    def set(self, name: str, value: float) -> None:
        """Set a scalar: it counts from the next push and the next pull on. Raises G0563."""
        with self._ready():
            self._check_fixed(name)
            for store in self._stores:
                if name in store.names:
                    store.engine.scalars.set(name, value)
        self._changed()

    def _check_fixed(self, name: str) -> None:
        if self.traced:
            text = (
                f"'{name}' can't be set while pushes are {self.traced}: nothing says from which "
                "push on it would count"
            )
            help = (
                "set it between epochs, as in a callback's on_epoch_end, or let it follow from "
                "graphc.step_count()"
            )
            raise GraphcError("G0563", text, help=help)
        if self.elsewhere:
            text = f"the servers of {self.elsewhere} have '{name}' until this training ends"
            raise GraphcError("G0563", text, help="set it between two calls of fit")

    def get(self, name: str) -> float:
        """The value of a scalar."""
        with self._ready():
            return next(s.engine.scalars.get(name) for s in self._stores if name in s.names)
