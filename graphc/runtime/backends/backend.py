"""What a backend is: it loads programs, and runs them on one device of a session.

A backend is a plug-in of the entry point group `graphc.backends`. One that has kernels only makes
itself with `KernelBackend`: feeding, placement, conversions, collectives and variables are then
done for it by `graphc.runtime.backends.executor`. One that compiles whole steps implements the
protocols.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, Protocol, TypeAlias

from numpy.typing import NDArray

from graphc.lowering.program.program import Footprint, Program
from graphc.runtime.data.supply import Supply
from graphc.runtime.transports.transport import Communicator

Array: TypeAlias = NDArray[Any]
Programs: TypeAlias = Mapping[str, Program]


class FastPath(Protocol):
    """The short way to the steps of a program, for batches that need nothing but the step itself.

    It may be used while `open` is True.
    """

    open: bool

    @property
    def done(self) -> int:
        """How many steps have been run to the end this way."""
        ...

    def step(self, batch: Any) -> dict[str, Any] | None:
        """The outputs of a step, scalars as Python numbers.

        None, and nothing is done, where the batch is not whole, or no dict of arrays of the right
        dtypes in the order that was agreed on, and while another step runs. A signal is raised
        before the step or after it.
        """
        ...


class Device(Protocol):
    """One rank's variables, and the steps that it can run on them.

    Arrays that go in or out are NumPy arrays of the padded local shape; those that come out are
    the caller's to keep.
    """

    committing: bool  # whether the present (or last) step has begun to write variables

    @property
    def footprint(self) -> Footprint:
        """The bytes that this one device has taken so far; what devices share is shared out."""
        ...

    def get(self, name: str) -> Array:
        """This rank's shard of a variable."""
        ...

    def set(self, name: str, value: Array) -> None:
        """Overwrite this rank's shard of a variable with a copy of the value."""
        ...

    def prepare(self, program: str) -> None:
        """Make ready what the steps of a program need, before the first of them.

        All ranks call it in one run, so that it may exchange what they need of each other. Where
        one of them fails, or is interrupted, it is called on all of them again.
        """
        ...

    def step(self, program: str, supply: Supply) -> dict[str, Array]:
        """Run one step of a program that was prepared, and return its outputs.

        Sets `committing` to False at its begin and to True before the first write of a variable,
        which no rank makes before all have come so far. A step that raises before that leaves the
        variables as they were.
        """
        ...

    def fast_path(
        self, program: str, names: tuple[str, ...], turn: Lock, devices: Sequence[Any]
    ) -> FastPath | None:
        """A short way to run the steps of a program on all devices, if there is one.

        names: the entries of the batches to come, in order; turn: is held while a step runs;
        devices: those of the whole mesh, by rank, of which this is the first. Only a program that
        can't fail once it has begun to write may have one.
        """
        ...


class Loaded(Protocol):
    """Programs made ready for a device: checked, compiled."""

    def prepare(self, program: str) -> None:
        """Compile what all devices have in common of a program, before `Device.prepare`.

        Runs on the thread that asks for a step. The C library keeps the memory that a thread has
        freed in an arena for later threads: if devices compiled, each of these arenas would grow
        to what a compilation takes.
        """
        ...

    def footprints(self, names: Sequence[str], together: bool = True) -> tuple[Footprint, ...]:
        """What devices will have taken once steps of these programs were run, for the first time
        in this order: to the byte, by kind of device, the largest first. Nothing is taken for it.

        Batches are counted in as the programs' inputs say them; what is cast or strided may be
        copied besides. together: the devices are threads of one process that wait for each other
        without end (`Communicator.common`)
        """
        ...

    def device(self, rank: int, comm: Communicator) -> Device:
        """The device of one rank, on the thread that will run it. Variables start undefined.

        comm is the rank's communicator in every step to come.
        """
        ...


class Backend(Protocol):
    """A backend: `name` as in `--backend NAME`; `executor` says in a word how it runs a step.

    kernels: what the bits of its results depend on, besides NumPy and its BLAS; "" if nothing
    note:    a line that tells the user why steps are not run as fast as they could be; "" if not
    """

    @property
    def name(self) -> str: ...
    @property
    def executor(self) -> str: ...
    @property
    def kernels(self) -> str: ...
    @property
    def note(self) -> str: ...

    def available(self) -> str | None:
        """None where it can run here, else the reason why not. Must be cheap."""
        ...

    def load(self, programs: Programs) -> Loaded:
        """Make programs ready that share one mesh and one set of variables."""
        ...
