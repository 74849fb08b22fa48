"""A step of a process with one device, which exchanges values with the others of its job.

Between two collectives it is native code, as on the fast path, but each collective is a call of
Python. So nothing else should be: how the batch is fed, which calls are made, and whether a device
may write are the same in each step whose batch has the same length, and known before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.lowering.program.program import Feed, Instruction, Start, Wait
from graphc.runtime.backends.site import CACHE_SIZE
from graphc.runtime.data.supply import Supply, WholeBatch
from graphc.runtime.transports.transport import Handle
from graphc_numpy.native.feeding import Fed, Feeding, fed_buffers
from graphc_numpy.native.step.regions import TURN
from graphc_numpy.native.threads.pool import LINE, Words, new_words

if TYPE_CHECKING:
    from graphc_numpy.native.device import BoundStep

Call = Callable[[], object]


class NativePreparedStep:
    """See graphc.runtime.backends.backend.PreparedStep."""

    def __init__(self, step: BoundStep, names: tuple[str, ...], fed: Fed) -> None:
        self._step, self._names = step, names
        self._site, self._program = step.bound.site, step.program
        self._frames = self._new_frames()
        self._feeding = Feeding([step], fed, self._frames)
        self._made: dict[object, tuple[list[Call], list[Call]]] = {}  # by how the batch is split
        self._handles: dict[int, Handle] = {}
        self._batch: Any = None
        self._results = [(name, x.copy if x.ndim else x.item) for name, x in step.outputs]
        ranges = {n: self._program.buffers[b].ranges for n, b in self._program.outputs.items()}
        self._shortened = [(n, rs) for n, rs in ranges.items() if any(r.extent for r in rs)]

    def _new_frames(self) -> Words:
        """A frame for each turn, one in a row."""
        frame = self._step.new_frame(self._step.counts, self._step.homes)
        turns, width = self._program.mesh.turns, -(-len(frame) // LINE) * LINE
        table = new_words(turns * width).reshape(turns, width)
        table[:, : len(frame)] = frame
        table[:, TURN] = range(turns)
        return table

    def takes(self, batch: Any) -> bool:
        """See graphc.runtime.backends.backend."""
        if type(batch) is not dict or tuple(batch) != self._names:
            return False
        if not self._feeding.feed(batch):
            return False
        self._batch = batch
        own, every = self._site.turns_of(self._feeding.present)
        return own == every  # else others have turns in which this device only meets them

    @property
    def supply(self) -> Supply:
        """See graphc.runtime.backends.backend."""
        return self._feeding.supply

    def run(self) -> dict[str, Any]:
        """See graphc.runtime.backends.backend."""
        step, supply = self._step, self._feeding.supply
        body, commit = self._made.get(supply.key) or self._calls(supply)
        step.device.committing = False
        step.barrier[:] = 0  # where a run that failed has left some waiting
        step.noted.forget()
        with np.errstate(all="ignore"):
            for call in body:
                call()
            step.device.committing = True
            for call in commit:
                call()
        outputs = {name: take() for name, take in self._results}
        for name, ranges in self._shortened:
            ends = (supply.cut(r, {})[1] for r in ranges)
            outputs[name] = outputs[name][tuple(map(slice, ends))]
        return outputs

    # -- what is called ---------------------------------------------------------------------------

    def _calls(self, supply: Supply) -> tuple[list[Call], list[Call]]:
        """The calls before the first write, and those from there on."""
        *parts, last = self._step.made.parts
        own, _ = self._site.turns_of(self._site.present(supply))
        body = [
            call
            for i, part in enumerate(parts)
            for turn in range(own if i % 2 else 1)
            for x in part
            for call in self._calls_of(x, turn, supply)
        ]
        commit = [call for x in last for call in self._calls_of(x, 0, supply)]
        if len(self._made) >= CACHE_SIZE:
            self._made.clear()
        made = self._made[supply.key] = [*body, self._step.agree.of(supply)], commit
        return made

    def _calls_of(self, x: Instruction | int, turn: int, supply: Supply) -> Iterator[Call]:
        match x:
            case int():
                yield from self._region(x, turn)
            case Start() if self._site.runs(x):
                if x is self._step.agree.last:  # what fails from here on fails too late
                    yield partial(setattr, self._step.device, "committing", True)
                yield self._start(x, turn, supply)
            case Wait(token=token) if self._site.runs(x):
                yield lambda: self._handles.pop(token).wait()

    def _region(self, number: int, turn: int) -> Iterator[Call]:
        yield self._step.region_alone(number, self._frames[turn])
        if number in self._step.made.checked:
            yield partial(self._check, turn)

    def _check(self, turn: int) -> None:
        if self._step.noted.failed:
            supply = WholeBatch(self._program, self._batch)
            raise self._step.error(self._step.noted.first(), turn, supply)

    def _start(self, start: Start, turn: int, supply: Supply) -> Call:
        arrays, comm = self._step.arrays, self._step.bound.comm
        out, call = arrays[start.result], self._site.call(start, turn, supply)
        # Of a value that is at another home, only the shape counts: that of the result.
        sent = arrays[start.operand] if self._site.holds(start.operand) else out
        handles, token = self._handles, start.token

        def begin() -> None:
            handles[token] = comm.start(call, sent, out)

        return begin


def prepared_step(step: BoundStep, names: tuple[str, ...]) -> NativePreparedStep | None:
    """None unless feeding and collectives are all that the host does, and no error is found after
    the first write."""
    made, here = step.made, step.bound.comm.here
    hosted = [x for part in made.parts for x in part if not isinstance(x, int)]
    if (
        len(here) > 1
        or step.across.common is not None
        or step.addresses is not None
        or step.recording.timed is not None
        or not all(isinstance(x, Feed | Start | Wait) for x in hosted)
        or not all(step.bound.site.runs(x) for x in hosted if isinstance(x, Feed))
        or any(isinstance(x, Feed) for x in made.parts[-1])
        or not made.checked.isdisjoint(made.parts[-1])
    ):
        return None
    fed = fed_buffers([step])
    if fed is None or sorted(fed) != sorted(names):
        return None
    return NativePreparedStep(step, names, fed)
