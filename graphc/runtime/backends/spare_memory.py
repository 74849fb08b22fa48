"""Memory that is used again: the system clears new memory page by page, which takes about as long
as to copy large arrays there."""

from __future__ import annotations

import weakref
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array: TypeAlias = NDArray[Any]
ALIGN = 64  # bytes


class SpareMemory:
    """Arrays by name, each in memory that an earlier array of that name had, once nobody has that
    or a view of it any more: first in what was let go of last. Used from many threads.

    As many blocks of a name are kept as were in use at a time.
    """

    def __init__(self) -> None:
        self._spare: dict[str, list[bytearray]] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """An array that begins with a cache line; its entries are undefined. All arrays of a name
        have as many bytes."""
        size, spare = np.dtype(dtype).itemsize * prod(shape), self._spare.setdefault(name, [])
        try:
            memory = spare.pop()
        except IndexError:
            memory = bytearray(size + ALIGN)
        whole = np.frombuffer(memory, np.uint8)  # every view of it has it as its base
        weakref.finalize(whole, spare.append, memory).atexit = False
        start = -whole.ctypes.data % ALIGN
        return whole[start : start + size].view(dtype).reshape(shape)

    def copy(self, name: str, x: Array) -> Array:
        """A copy of an array."""
        copy = self.array(name, x.shape, x.dtype)
        copy[...] = x
        return copy

    def clear(self) -> None:
        """Free what nobody has now."""
        for spare in tuple(self._spare.values()):
            spare.clear()
