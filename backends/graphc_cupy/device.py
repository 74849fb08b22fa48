"""One rank on a GPU: its variables and its arena."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from graphc_numpy.native.memory import share

from graphc.lowering.program.program import Buffer, Footprint
from graphc.runtime.backends.backend import Copy
from graphc.runtime.backends.site import Site
from graphc.runtime.data.supply import Array, Supply
from graphc.runtime.transports.transport import Communicator
from graphc_cupy.fast_path import CupyFastPath, fast_path
from graphc_cupy.graph import CupyStep
from graphc_cupy.memory import DeviceBlock, SharedMemory
from graphc_cupy.pending import of_the_step_before

if TYPE_CHECKING:
    from graphc_cupy.loaded import CupyLoaded


class CupyDevice:
    """See graphc.runtime.backends.backend.Device. The first rank runs the steps of all of them.

    scratch: of the first rank: what a step uses only while it runs, of all ranks together
    """

    def __init__(self, loaded: CupyLoaded, rank: int, comm: Communicator) -> None:
        self._loaded, self.rank, self._comm = loaded, rank, comm
        self.cuda = loaded.gpu.cuda
        program = next(iter(loaded.programs.values()))
        site = Site(program, rank)
        held = {name: program.buffers[b] for name, b in program.variables.items() if site.holds(b)}
        self._buffers: dict[str, Buffer] = held
        self.variables = {name: DeviceBlock(self.cuda, b.bytes) for name, b in held.items()}
        self._arena, self.scratch = (SharedMemory(self.cuda) for _ in range(2))
        self._steps: dict[str, CupyStep] = {}  # of all ranks, if this is the first
        self.committing = False

    @property
    def footprint(self) -> Footprint:
        first = self._loaded.devices[0]
        constants = sum(step.constants(self.rank) for step in first._steps.values())
        return self.taken(constants, share(first.scratch.total, self._comm.size))

    def taken(self, constants: int, scratch: int) -> Footprint:
        """The bytes that this rank uses, with those of its constants and of what it shares."""
        variables = sum(x.size for x in self.variables.values())
        return Footprint(1, variables, constants, self._arena.total, scratch)

    def arena(self, size: int) -> DeviceBlock:
        """The arena of programs that need so much of it."""
        return self._arena.take(size)

    def get(self, name: str, copy: Copy | None = None) -> Array:
        b = self._buffers[name]
        value = np.empty(b.shape, b.dtype.numpy)
        with self._loaded.lock:
            self._loaded.settle()
            self.variables[name].take(self._loaded.stream, value)
        return value

    def set(self, name: str, value: Array) -> None:
        b = self._buffers[name]
        dense = np.empty(b.shape, b.dtype.numpy)
        np.copyto(dense, value)
        with self._loaded.lock:
            self._loaded.settle()
            self.variables[name].put(self._loaded.stream, dense)

    def prepare(self, program: str) -> None:
        if self.rank == 0:
            prepared = self._loaded.prepared(program)
            self._steps[program] = CupyStep(self._loaded, prepared, self._comm)

    def step(self, program: str, supply: Supply) -> dict[str, Array]:
        self.committing = False
        outputs: dict[str, Array] = {}
        if self.rank == 0:
            of_the_step_before(self._loaded.settle)
            outputs = self._steps[program].run(supply, self._commits)
        self._comm.meet_all()
        return outputs

    def _commits(self, now: bool) -> None:
        self.committing = now

    def fast_path(
        self, program: str, names: tuple[str, ...], turn: Lock, devices: Sequence[Any]
    ) -> CupyFastPath | None:
        step = self._steps.get(program)
        return fast_path(self._loaded, step, names, turn) if step is not None else None
