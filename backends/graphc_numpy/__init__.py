"""The NumPy backend: a program as a straight list of bound NumPy calls over one arena.

It runs wherever NumPy runs, and is the embedded default.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphc.runtime.backend import Loaded, Programs


@dataclass(frozen=True)
class NumpyBackend:
    """CPU arrays, `out=` everywhere, no allocation in the common operations."""

    name: str = "numpy"
    executor: str = "numpy"

    def available(self) -> str | None:
        return None

    def load(self, programs: Programs, role: str = "replica") -> Loaded:
        from graphc_numpy.device import NumpyLoaded

        return NumpyLoaded(programs, role)


BACKEND = NumpyBackend()
