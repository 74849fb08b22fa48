"""The fast paths of one program: that of full batches, and that of shorter ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphc.runtime.backends.backend import FastPath


class FastPaths:
    """Takes the path that is made for a batch.

    find: that of short batches, once one of them has taken the normal path; None before
    """

    def __init__(self, full: FastPath, find: Callable[[], FastPath | None]) -> None:
        self.full, self._find = full, find
        self.short: FastPath | None = None

    @property
    def open(self) -> bool:
        return self.full.open

    @open.setter
    def open(self, value: bool) -> None:
        self.full.open = value
        if self.short is not None:
            self.short.open = value

    @property
    def done(self) -> int:
        return self.full.done + (self.short.done if self.short is not None else 0)

    def step(self, batch: Any) -> dict[str, Any] | None:
        """See graphc.runtime.backends.backend.FastPath."""
        found = self.full.step(batch)
        if found is not None or not self.full.open:
            return found
        if self.short is None:
            self.short = self._find()
        return self.short.step(batch) if self.short is not None else None
