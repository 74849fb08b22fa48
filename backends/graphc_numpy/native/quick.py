"""The shortest way to a step: whole batches of a program that one device runs natively.

What is left of Python is one look at each entry of the batch, and one call of each stretch.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray

from graphc.program import Feed
from graphc_numpy.native.step import MEMORIES
from graphc_numpy.native.threads import new_words

if TYPE_CHECKING:
    from graphc_numpy.native.device import Step

Array: TypeAlias = NDArray[Any]
COPIED = 1 << 14  # bytes of an entry up to which a copy takes less time than a pointer to it


class Quick:
    """See graphc.runtime.backend.Quick. `turn` is held while a step runs."""

    def __init__(self, step: Step, names: tuple[str, ...], turn: threading.Lock) -> None:
        self.open, self.names = True, names
        self._step, self._turn = step, turn
        self._counts = new_words(len(step.made.stretches.found) + 1)
        self._frame = step.new_frame(self._counts)
        found = {x.source: x for x in step.made.parts[0] if isinstance(x, Feed)}
        self._entries = [(name, *self._entry(found[name])) for name in names]
        stretches = [x for part in step.made.parts for x in part if isinstance(x, int)]
        self._runs = [run for x in stretches for run in step.stretch(x, self._frame)]
        self._last = stretches[-1]
        self._results = [(name, x.copy if x.ndim else x.item) for name, x in step.outputs]
        self._kept: dict[int, Array] = {}  # what words of the frame point to

    def _entry(self, feed: Feed) -> tuple[tuple[int, ...], np.dtype[Any], Array | None, int]:
        """(shape, dtype, where a small one is copied to, its word of the frame)."""
        b = self._step.program.buffers[feed.result]
        word = MEMORIES + self._step.made.lowered.places[b.id].memory
        if b.bytes > COPIED and b.id in self._step.pointed:
            return b.shape, b.dtype.numpy, None, word
        own = self._step.arrays[b.id]
        if b.id in self._step.pointed:
            own = self._step.copy_of(b.id)
            self._frame[word] = own.ctypes.data
        return b.shape, b.dtype.numpy, own, word

    @property
    def done(self) -> int:
        """How many steps were run this way."""
        return int(self._counts[self._last])

    def step(self, batch: Any) -> dict[str, Any] | None:
        """One step; None where the batch must go the long way."""
        if type(batch) is not dict or tuple(batch) != self.names or self._turn.locked():
            return None
        with self._turn:  # no signal is raised between its being taken and the block
            if not self.open:
                return None
            for name, shape, dtype, own, word in self._entries:
                x = batch[name]
                if type(x) is not ndarray or x.shape != shape or x.dtype != dtype:
                    return None
                if own is not None:
                    own[...] = x
                elif not self._point(word, x):
                    return None
            for run in self._runs:
                run()
            made = {}
            for name, take in self._results:
                made[name] = take()
            return made

    def _point(self, word: int, x: Array) -> bool:
        """Let a word of the frame point to x, if x lies as it must."""
        flags = x.flags
        if not (flags.c_contiguous and flags.aligned):
            return False
        if self._kept.get(word) is not x:
            self._frame[word] = x.ctypes.data
            self._kept[word] = x
        return True


def quick(step: Step, names: tuple[str, ...], turn: threading.Lock) -> Quick | None:
    """The short way of a step, if it has no loop, nothing for the host to do but feeding, and no
    error can be found after the first write."""
    program, made = step.program, step.made
    instructions = [x for part in made.parts for x in part]
    fed = [x.source for x in instructions if isinstance(x, Feed)]
    if (
        step.hosted
        or program.mesh.devices > 1
        or program.mesh.turns > 1
        or sorted(fed) != sorted(names)
        or any(isinstance(x, Feed) for part in made.parts[1:] for x in part)
        or not any(isinstance(x, int) for x in made.parts[-1])
        or not made.checked.isdisjoint(made.parts[-1])
    ):
        return None
    return Quick(step, names, turn)
