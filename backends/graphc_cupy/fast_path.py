"""The fast path: a step whose batch is like the last one needs no more than to be copied.

One thread looks at the entries of the batch, copies each part to its place in pinned memory, and
replays the graphs. What is known of batches of a length is computed once.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
from graphc_numpy.native.step.error_checks import checks_of

from graphc.lowering.kernel.lowered import Native
from graphc.runtime.backends.site import CACHE_SIZE
from graphc.runtime.data.supply import Array, Counted, WholeBatch
from graphc.runtime.machine.interrupts import Uninterrupted
from graphc.support.errors import GraphcError
from graphc_cupy.graph import CupyStep

Index: TypeAlias = tuple[slice, ...]


@dataclass(frozen=True)
class _Known:
    """What is known of batches of a length.

    parts: of each part that a rank and turn reads: the entry, its place in pinned memory, and which
           entries of the tensor they are; they are written over those of the last step
    """

    supply: Counted
    parts: tuple[tuple[str, Array, Index], ...]


class CupyFastPath:
    """See graphc.runtime.backends.backend.FastPath. turn: a lock, held while a step runs"""

    def __init__(self, step: CupyStep, names: tuple[str, ...], turn: Lock) -> None:
        self.open, self.done = True, 0
        self._step, self._names, self._turn = step, names, turn
        self._dtypes = {n: step.program.inputs[n].dtype.numpy for n in names}
        self._known: dict[Hashable, _Known | None] = {}

    def step(self, batch: Any, variables: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        """Run one step; None if the batch must take the normal path, or variables are given: those
        of the GPU are read."""
        if variables is not None or type(batch) is not dict or tuple(batch) != self._names:
            return None
        if self._turn.locked():
            return None
        with self._turn:  # no signal is raised between its being taken and the block
            known = self._of(batch) if self.open else None
            if known is None:
                return None
            with Uninterrupted():
                outputs = self._run(known, batch)
                self.done += 1
        return {name: x.item() if x.ndim == 0 else x for name, x in outputs.items()}

    def _run(self, known: _Known, batch: Mapping[str, Array]) -> dict[str, Array]:
        step, supply = self._step, known.supply
        if step.staged != supply.key:
            step.stage(WholeBatch(step.program, batch))
        else:
            for name, place, index in known.parts:
                place[...] = batch[name][index]
        committing = False

        def commits(now: bool) -> None:
            nonlocal committing
            committing = now

        try:
            step.replay(supply, lambda: WholeBatch(step.program, batch), commits)
        except BaseException:
            self.open = self.open and not committing  # the variables are lost
            raise
        return step.outputs(supply)

    def _of(self, batch: Mapping[str, Any]) -> _Known | None:
        """What is known of batches like this; None of one that the program does not take."""
        for name, dtype in self._dtypes.items():
            x = batch[name]
            if type(x) is not np.ndarray or x.dtype != dtype:
                return None
        key = tuple(batch[name].shape for name in self._names)
        if key not in self._known:
            if len(self._known) >= CACHE_SIZE:
                self._known.clear()
            self._known[key] = self._measured(batch)
        return self._known[key]

    def _measured(self, batch: Mapping[str, Any]) -> _Known | None:
        program = self._step.program
        try:
            counts = WholeBatch(program, batch).counts
        except GraphcError:  # the normal path tells it
            return None
        if counts and all(n == program.counts[x] for x, n in counts.items()):
            return None  # a full batch has a program of its own
        supply = Counted(counts)
        return _Known(supply, tuple(self._step.parts(supply)))


def fast_path(step: CupyStep, names: tuple[str, ...], turn: Lock) -> CupyFastPath | None:
    """The fast path of a step. None unless feeding is all that the host does, and no error can be
    found after the first write."""
    commit = (x for x in step.lowered.parts[-1] if isinstance(x, Native))
    late = any(any(checks_of(call.kernel)) for line in commit for call in line.calls)
    if step.hosted or late or sorted(step.fed) != sorted(names):
        return None
    return CupyFastPath(step, names, turn)
