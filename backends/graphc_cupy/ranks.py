"""One rank's memory in a program: where each of its blocks begins."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.lowering.kernel.lowered import Host, Lowered, Memory, Native
from graphc.lowering.program.program import Feed, Program
from graphc.runtime.backends.site import Site
from graphc.runtime.data.supply import Array, Supply
from graphc_cupy.memory import DeviceBlock, Place, Staging, address

if TYPE_CHECKING:
    from graphc_cupy.device import CupyDevice

WORD = 8  # bytes


class BoundRank:
    """A rank, bound to its blocks. number: of the rank; staging: where its batch lies"""

    def __init__(
        self, device: CupyDevice, program: Program, lowered: Lowered, staging: Staging
    ) -> None:
        self.number, self.site = device.rank, Site(program, device.rank)
        self._lowered, self.staging, self._variables = lowered, staging, device.variables
        self._looped = loops_that_feed(lowered)
        names = {b: name for name, b in program.variables.items()}
        self.blocks = {
            i: block
            for i, m in enumerate(lowered.memories)
            if (block := self._block(m, device, names)) is not None
        }

    def runs(self, line: Native) -> bool:
        """Whether this rank runs a line, wherever that is at home."""
        at = self.site.coordinates[0]
        return all(at[axis] == k for axis, k in line.home)

    def base(self, memory: int, turn: int) -> int:
        """The address at which a memory begins that is no section; 0 where this rank lacks it."""
        place = self.place(memory, turn)
        return address(place) if place is not None else 0

    def moved(self, m: Memory, turn: int, supply: Supply) -> int:
        """How many bytes behind the beginning of a block a section of it begins."""
        return sum(self.site.number(p, turn, supply) * n for p, n in m.shift)

    def place(self, memory: int, turn: int) -> Place | None:
        """Where a memory begins that is no section."""
        m = self._lowered.memories[memory]
        match m.kind:
            case "feed" if self.site.holds(m.buffer):
                return self.staging.place(self._name(m.buffer, turn))
            case "positions":
                return self.staging.place(("positions", self.number, turn))
            case _:
                block = self.blocks.get(memory)
                return (block, 0) if block is not None else None

    @property
    def constants(self) -> int:
        """Bytes of constants."""
        memories = self._lowered.memories
        return sum(x.size for i, x in self.blocks.items() if memories[i].kind == "constant")

    def variable(self, name: str, stream: Any) -> Array:
        """The value of a variable."""
        b = self.site.program.buffers[self.site.program.variables[name]]
        value = np.empty(b.shape, b.dtype.numpy)
        self._variables[name].take(stream, value)
        return value

    def put_positions(self, turn: int, supply: Supply, needed: Sequence[int]) -> None:
        """Write the numbers that kernels load, for a turn, into pinned memory."""
        if count := len(self._lowered.positions):
            row = self.staging.array(("positions", self.number, turn), (count,), np.dtype(np.int64))
            for k in needed:
                row[k] = self.site.number(self._lowered.positions[k], turn, supply)

    def feed(self, feed: Feed, turn: int, supply: Supply) -> Hashable:
        """Write this rank's part of an entry into pinned memory; its name there."""
        b = self.site.program.buffers[feed.result]
        supply.fill(feed.source, b, self.site.coordinates[turn], self.fed_at(feed, turn))
        return self._name(b.id, turn)

    def fed_at(self, feed: Feed, turn: int) -> Array:
        """This rank's part of an entry in pinned memory."""
        b = self.site.program.buffers[feed.result]
        return self.staging.array(self._name(b.id, turn), b.shape, b.dtype.numpy)

    def _name(self, buffer: int, turn: int) -> Hashable:
        return "feed", self.number, buffer, turn if buffer in self._looped else 0

    def _block(self, m: Memory, device: CupyDevice, names: Mapping[int, str]) -> DeviceBlock | None:
        match m.kind:
            case "arena":
                return device.arena(m.bytes)
            case "variable":
                return device.variables.get(names[m.buffer])
            case "constant" if self.site.holds(m.buffer):
                return DeviceBlock(device.cuda, m.bytes)
            case "shared" | "own":
                raise AssertionError("each rank has its variables and its arena for itself")
            case _:
                return None


def loops_that_feed(lowered: Lowered) -> frozenset[int]:
    """The buffers that a loop is fed in each turn."""
    inside = (x for part in lowered.parts[1:-1:2] for x in part)
    feeds = (x.instruction for x in inside if isinstance(x, Host))
    return frozenset(x.result for x in feeds if isinstance(x, Feed))


def staged(
    program: Program, lowered: Lowered, ranks: Iterable[int]
) -> Iterator[tuple[Hashable, int]]:
    """What goes to the GPU before a step: the parts of its ranks and turns, and their numbers."""
    turns, looped = program.mesh.turns, loops_that_feed(lowered)
    fed = [m for m in lowered.memories if m.kind == "feed"]
    for rank in ranks:
        at = program.mesh.coordinates(rank)
        for m in fed:
            b = program.buffers[m.buffer]
            for turn in range(turns if b.id in looped else 1) if b.lies_at(at) else ():
                yield ("feed", rank, b.id, turn), b.bytes
        for turn in range(turns):
            yield ("positions", rank, turn), WORD * len(lowered.positions)
