"""Programs on one GPU: lowered, their kernels loaded, and bound to the memory of all ranks."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, TypeAlias
from weakref import WeakValueDictionary, finalize

from graphc_numpy.native.memory import share

import graphc.support.config as config
from graphc.ir.placement import Mesh
from graphc.lowering.kernel.lowered import Lowered
from graphc.lowering.program.program import Footprint, Program, by_kind, kinds_of_places
from graphc.lowering.target import LoweringTarget
from graphc.runtime.backends.backend import Programs
from graphc.runtime.profiling.recorder import Recorder
from graphc.runtime.transports.transport import Communicator
from graphc.support.dataclass import dataclass
from graphc_cupy.device import CupyDevice
from graphc_cupy.failing import ERRORS, error_bytes, joining
from graphc_cupy.library import Gpu, Launched, kernels_on
from graphc_cupy.memory import BlockLayout, SharedSizes
from graphc_cupy.pending import SLOTS, PendingStep
from graphc_cupy.ptx.joined import Launchable
from graphc_cupy.ranks import staged
from graphc_cupy.shared_launches import Launches, kernel_of, launches_of

Lowering: TypeAlias = Callable[[Program, int, LoweringTarget], Lowered]
SHOW_KERNELS = 3  # the level of GRAPHC_DEBUG that prints the kernels of a program


@dataclass(frozen=True)
class Prepared:
    """A program that was lowered, with its kernels on the GPU.

    launches: which calls are one launch; staged: what goes there before a step; scratch: that, the
    words of errors, and memory that kernels use only while they run
    """

    program: Program
    lowered: Lowered
    launches: Launches
    kernels: Mapping[Launchable, Launched]
    staged: BlockLayout
    scratch: BlockLayout


class CupyLoaded:
    """See graphc.runtime.backends.backend.Loaded.

    devices: by rank, as long as somebody has them: the first one runs the steps of all
    ranks: that the GPU has, in a row; all of the mesh if there is no other GPU
    """

    def __init__(
        self, programs: Programs, gpu: Gpu, ranks: range | None = None,
        lowering: Lowering | None = None, recorder: Recorder | None = None,
    ) -> None:  # fmt: skip
        self.pending: PendingStep | None = None  # a step that nobody has waited for
        self.programs, self.gpu, self.recorder = programs, gpu, recorder
        self.ranks = range(next(iter(programs.values())).mesh.devices) if ranks is None else ranks
        self._lowering = lowering or lowered_for
        self.devices = WeakValueDictionary[int, CupyDevice]()
        self._prepared: dict[str, Prepared] = {}
        self.lock = threading.RLock()

    @cached_property
    def stream(self) -> Any:
        """Runs everything, in order."""
        return self.gpu.cuda.Stream(non_blocking=True)

    @cached_property
    def sending(self) -> Any:
        """A stream that brings batches to the GPU while steps run."""
        return self.gpu.cuda.Stream(non_blocking=True)

    def settle(self) -> None:
        """Wait for the step that nobody has waited for, if there is one. Raises its error."""
        with self.lock:
            pending, self.pending = self.pending, None
            if pending is not None and not pending.is_over:
                pending.settle()

    def finish(self) -> None:
        """Wait for it; its error is told only to who reads its results."""
        with self.lock:
            pending, self.pending = self.pending, None
            if pending is not None:
                pending.finish()

    def device(self, rank: int, comm: Communicator) -> CupyDevice:
        with self.lock:
            self.devices[rank] = device = CupyDevice(self, rank, comm)
        finalize(device, _ended, self.stream, os.getpid())
        return device

    def prepare(self, program: str) -> None:
        self.prepared(program)

    def prepared(self, name: str) -> Prepared:
        """A program with its kernels on the GPU."""
        with self.lock:
            if name not in self._prepared:
                self._prepared[name] = self._prepare(self.programs[name])
            return self._prepared[name]

    def _prepare(self, program: Program) -> Prepared:
        lowered = self._lowering(program, len(self.ranks), self.gpu.target)
        if config.get().debug >= SHOW_KERNELS:
            from graphc.lowering.kernel_listing import listing

            print(listing(program, lowered, self.gpu.target), file=sys.stderr)
        join = joining(program, lowered)
        launches = launches_of(lowered, join=self.recorder is None)
        ours = [kernel_of(calls) for line in launches.values() for calls in line]
        kernels = kernels_on(self.gpu, [*ours, *([join] if join else [])])
        before = BlockLayout.of(staged(program, lowered, self.ranks))
        sizes = {
            **{f"staged {k}": before.size for k in range(SLOTS)},
            ERRORS: error_bytes(program, lowered),
            "own": max((k.own for k in kernels.values()), default=0),
        }
        return Prepared(program, lowered, launches, kernels, before, BlockLayout.of(sizes.items()))

    def footprints(self, names: Sequence[str], together: bool = True) -> tuple[Footprint, ...]:
        first = next(iter(self.programs.values()))
        arena, scratch, constants = SharedSizes(), SharedSizes(), []
        for prepared in map(self.prepared, names):
            arena.take(prepared.lowered.arena)
            scratch.take(prepared.scratch.size)
            memories = prepared.lowered.memories
            constants += [
                prepared.program.buffers[m.buffer] for m in memories if m.kind == "constant"
            ]
        programs = [first, *(self.programs[n] for n in names)]
        return by_kind(
            Footprint(
                devices,
                first.bytes_at(at, "variable"),
                sum(b.bytes for b in constants if b.lies_at(at)),
                arena.total,
                share(scratch.total, len(self.ranks)),
            )
            for at, devices in self._places(first.mesh, programs)
        )

    def _places(self, mesh: Mesh, programs: Sequence[Program]) -> Iterable[tuple[Any, int]]:
        """Coordinates of each kind of rank on this GPU, with how many there are."""
        if len(self.ranks) == mesh.devices:
            return kinds_of_places(mesh, programs)
        return ((mesh.coordinates(rank), 1) for rank in self.ranks)

    @property
    def scratch_bytes(self) -> int:
        """The bytes that all ranks have together, for what a step uses only while it runs."""
        return self.devices[self.ranks[0]].scratch.total


def _ended(stream: Any, process: int) -> None:
    """Wait for the last step before the memory is free that it uses: cupy gives it to others at
    once. A fork has no GPU to wait for; an error was told, or nobody asked for it."""
    if os.getpid() == process:
        with suppress(Exception):
            stream.synchronize()


def lowered_for(program: Program, ranks: int, target: LoweringTarget) -> Lowered:
    """A program lowered for GPUs that have so many ranks each."""
    from graphc.lowering.lower import lower

    shared: frozenset[str] | None = frozenset() if ranks > 1 else None
    return lower(program, shared, here=ranks, target=target)
