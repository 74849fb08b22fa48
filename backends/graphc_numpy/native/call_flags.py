"""Which calls of a region a device runs: in regions, all devices meet."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.lowering.kernel.lowered import Home
from graphc.runtime.backends.site import Site
from graphc_numpy.native.threads.pool import LINE, new_words


class CallFlags:
    """A flag for each home that calls have, as one device sees them.

    In a turn in which the device has no leaf, none is set: it runs nothing, and meets the others.
    """

    def __init__(self, site: Site, homes: Sequence[Home]) -> None:
        at, width = site.coordinates[0], -(-len(homes) // LINE) * LINE
        self._words = new_words(2 * width).reshape(2, width)
        self._words[1, : len(homes)] = [all(at[a] == k for a, k in home) for home in homes]

    def address(self, leaf: bool = True) -> int:
        """The word of a frame. leaf: whether the device has one in this turn."""
        return int(self._words[int(leaf)].ctypes.data)
