"""A device that runs programs as lists of bound calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphc.lowering.memory.memory_plan import MemoryPlan, plan_memory
from graphc.lowering.program.program import Footprint, by_kind, kinds_of_places
from graphc.runtime.backends.backend import Copy, Programs
from graphc.runtime.backends.site import Site
from graphc.runtime.data.supply import Supply
from graphc.runtime.profiling.activities import InstructionTimer
from graphc.runtime.profiling.recorder import Recorder
from graphc.runtime.transports.transport import Communicator
from graphc_numpy.calls.binding import Binding
from graphc_numpy.memory import Allocator, Bytes, arrays_of

Array: TypeAlias = NDArray[Any]


class NumpyLoaded:
    """Programs; each device binds them to arrays of its own."""

    def __init__(
        self, programs: Programs, allocator: Allocator, recorder: Recorder | None = None
    ) -> None:
        self._programs, self._allocator, self._recorder = programs, allocator, recorder
        self._plans = {name: plan_memory(p) for name, p in programs.items()}

    def footprints(self, names: Sequence[str], together: bool = True) -> tuple[Footprint, ...]:
        """See graphc.runtime.backends.backend.Loaded. A device takes what any program needs."""
        programs = list(self._programs.values())
        return by_kind(
            Footprint(
                devices,
                programs[0].bytes_at(at, "variable"),
                sum(p.bytes_at(at, "constant") for p in programs),
                max(plan.arena_at(at) for plan in self._plans.values()),
            )
            for at, devices in kinds_of_places(programs[0].mesh, programs)
        )

    def device(self, rank: int, comm: Communicator) -> NumpyDevice:
        return NumpyDevice(self._plans, rank, comm, self._allocator, self._recorder)

    def prepare(self, program: str) -> None:
        """Nothing: each device binds the programs when it is made."""


class NumpyDevice:
    """One rank: its arena, which all programs use in turn, and its variables."""

    def __init__(
        self, plans: Mapping[str, MemoryPlan], rank: int, comm: Communicator, allocator: Allocator,
        recorder: Recorder | None = None,
    ) -> None:  # fmt: skip
        sites = {name: Site(plan.program, rank) for name, plan in plans.items()}
        self._comm = comm
        size = max(plans[name].arena_at(s.coordinates[0]) for name, s in sites.items())
        self._arena = arena = allocator.block(size)
        variables = _variables(next(iter(sites.values())), allocator)
        self._steps = {
            name: _BoundCalls(
                site, comm, arrays_of(site, plans[name], arena, variables, allocator), recorder
            )
            for name, site in sites.items()
        }
        self._variables = next(iter(self._steps.values())).variables
        self.committing = False

    @property
    def footprint(self) -> Footprint:
        variables = sum(x.nbytes for x in self._variables.values())
        constants = sum(step.constants for step in self._steps.values())
        return Footprint(1, variables, constants, self._arena.nbytes)

    def get(self, name: str, copy: Copy | None = None) -> Array:
        x = self._variables[name]
        return x.copy() if copy is None else copy(name, x)

    def set(self, name: str, value: Array) -> None:
        np.copyto(self._variables[name], value)

    def fast_path(
        self, program: str, names: tuple[str, ...], turn: Lock, devices: Sequence[Any]
    ) -> None:
        return None

    def prepare(self, program: str) -> None:
        """Nothing: every step is bound when the device is made."""

    def step(self, program: str, supply: Supply) -> dict[str, Array]:
        self.committing = False
        step = self._steps[program]
        with np.errstate(all="ignore"):
            step.before_commit(supply)
            step.agree()
            self.committing = True
            return step.commit()


def _variables(site: Site, allocator: Allocator) -> dict[str, Bytes]:
    buffers, ids = site.program.buffers, site.program.variables
    return allocator.blocks({n: buffers[b].bytes for n, b in ids.items() if site.holds(b)})


class _BoundCalls:
    """One program, bound to one rank's arrays."""

    def __init__(
        self, site: Site, comm: Communicator, arrays: Sequence[Array], recorder: Recorder | None
    ) -> None:
        self.program, self.arrays = site.program, arrays
        held = ((v, b) for v, b in self.program.variables.items() if site.holds(b))
        self.variables = {name: arrays[b] for name, b in held}
        timed = InstructionTimer.of(recorder, site) if recorder is not None else None
        self.agree = comm.meet_all if timed is None else timed.log.waited(comm.meet_all)
        self.bound = bound = Binding(site, comm, arrays, timed)
        self.setup = bound.calls(
            self.program.setup
        )  # kept, as errors are told by the identity of calls
        bound.perform(self.setup)
        *body, commit = self.program.parts  # straight, loop, straight, ...
        self.body, self.writes = [bound.calls(part) for part in body], bound.calls(commit)
        self.idle = [bound.calls(site.idle(part)) for part in body]

    @property
    def constants(self) -> int:
        """Bytes of constants here."""
        here = filter(lambda b: self.bound.site.holds(b.id), self.program.buffers)
        return sum(b.bytes for b in here if b.kind == "constant")

    def before_commit(self, supply: Supply) -> None:
        """Everything up to the first write of a variable."""
        self.bound.begin(supply)
        for i, part in enumerate(self.body):
            self.bound.perform_part(part, self.idle[i], loop=i % 2 == 1)

    def commit(self) -> dict[str, Array]:
        """The rest of the step; copies of the outputs."""
        self.bound.perform(self.writes)
        return {name: self.arrays[b].copy() for name, b in self.program.outputs.items()}
