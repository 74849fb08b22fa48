"""The last collective of a step before it writes: often it tells that nobody has failed.

Before a step writes anything, all devices must have come so far: a device that found an index out
of range must not be the only one whose variables stay. Devices in several processes would have to
send each other one more message for that. But a device that has a sum over all devices knows that
each of them has begun that sum; and if nothing that can fail stands behind, each will go on.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from math import prod

from graphc.ir.collectives import CollectiveKind
from graphc.lowering.program.program import Instruction, Start, Wait
from graphc.runtime.backends.site import Site
from graphc.runtime.data.supply import Supply
from graphc.runtime.transports.transport import Communicator, hears_all
from graphc_numpy.native.compiled import Compiled


@dataclass(frozen=True)
class LastMeeting:
    """A collective that is waited for before the first write, and behind which nothing fails.

    entries: those of what is summed; size, here: ranks of the session, and of this process
    """

    start: Start
    entries: int
    size: int
    here: int

    @classmethod
    def of(
        cls, compiled: Compiled, site: Site, comm: Communicator, checked: bool
    ) -> LastMeeting | None:
        """That of a program, if there is one, and if devices are in several processes.

        checked: whether every region may fail, as in a build that checks addresses
        """
        here = len(comm.here)
        if here == comm.size or len(compiled.parts) < 2:
            return None
        mesh, buffers = site.program.mesh, site.program.buffers

        def of_all(start: Start) -> bool:
            axes = [mesh.axis(a) for a in start.op.axes]
            return comm.size == prod(a.size for a in axes if a.over == "space") and (
                start.op.collective.kind is CollectiveKind.ALL_REDUCE
            )

        start = None if checked else _last(compiled.parts[-2], compiled.checked, of_all)
        if start is None:
            return None
        return cls(start, prod(buffers[start.result].shape), comm.size, here)

    def heard(self, site: Site, supply: Supply) -> bool:
        """Whether in this step the sum is heard of all: a device may have nothing to add."""
        return hears_all(site.call(self.start, 0, supply), self.entries, self.size, self.here)


def _last(
    part: Iterable[Instruction | int], checked: Container[int], of_all: Callable[[Start], bool]
) -> Start | None:
    """The last sum over all devices that is waited for in a part, if nothing fails behind it."""
    waited: set[int] = set()
    for x in reversed(tuple(part)):
        match x:
            case Wait(token=token):
                waited.add(token)
            case Start(token=token):
                if token in waited and of_all(x):
                    return x
            case int() if x not in checked:
                pass
            case _:
                return None
    return None
