"""The NumPy backend: a program as machine code, or as a straight list of NumPy calls.

It runs wherever NumPy runs, and is the embedded default.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from graphc.runtime.backend import Loaded, Programs

NATIVE = False  # whether steps are compiled where nothing else is said (GRAPHC_NATIVE)


@dataclass(frozen=True)
class NumpyBackend:
    """CPU arrays; compiled steps where llvmlite is there, else `out=` everywhere."""

    name: str = "numpy"

    @property
    def executor(self) -> str:
        """'native' or 'numpy': whether steps are machine code."""
        return "native" if self.reason is None else "numpy"

    @property
    def reason(self) -> str | None:
        """Why steps are not compiled, or None."""
        from graphc.config import get

        wanted = get().native
        if not (NATIVE if wanted is None else wanted):
            return "GRAPHC_NATIVE is 0" if wanted is False else "compiled steps are switched off"
        if find_spec("llvmlite") is None:
            return "llvmlite is not installed (pip install llvmlite)"
        return None

    @property
    def kernels(self) -> str:
        """What made the code of the kernels, for the fingerprint of a run."""
        if self.reason is not None:
            return ""
        from graphc_numpy.native.machine import generator, target

        return f"{target().instructions}, generator {generator()}"

    def available(self) -> str | None:
        return None

    def load(self, programs: Programs, role: str = "replica") -> Loaded:
        if self.reason is None:
            from graphc_numpy.native.device import NativeLoaded

            return NativeLoaded(programs, role)
        from graphc_numpy.device import NumpyLoaded

        return NumpyLoaded(programs, role)


BACKEND = NumpyBackend()
