"""What the devices of one process do together, where each can access the memory of all.

A sum over devices reads its operands where they are: no copy is made, and the user of the sum is
fused with it. A variable that is equal on all devices is in memory once; each device writes a part
of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from graphc.ir.placement import Partial, R
from graphc.lowering.nodes.values import ValueTable
from graphc.lowering.program.program import Kernel, Program, Start
from graphc.ops.elementwise import Aggregate

MOST = 16  # coordinates whose values are summed at once


@dataclass(frozen=True, slots=True)
class Peer:
    """A coordinate's own memory of buffer `root`: that of position `position` along `axes`."""

    root: int
    axes: tuple[str, ...]
    position: int


@dataclass
class Peers:
    """The buffers that stand for peers' memory, and the sums that read them, by token."""

    found: dict[int, Peer] = field(default_factory=dict)
    sums: dict[int, Kernel] = field(default_factory=dict)

    def add(self, values: ValueTable, start: Start, size: int) -> None:
        """The kernel that does what a collective does, on `size` coordinates' memory."""
        op, operand = start.op, values.buffers[start.operand]
        reads = [self._at(values, operand.id, op.axes, k) for k in range(size)]
        kernel = Aggregate(op.order)
        self.sums[start.token] = Kernel(
            kernel, tuple(reads), start.result, start.node, start.origin
        )

    def _at(self, values: ValueTable, operand: int, axes: tuple[str, ...], position: int) -> int:
        """The buffer of a coordinate, or a view of it, as the operand is."""
        buffers = values.buffers
        root = buffers[buffers[operand].root]
        at = len(buffers)
        buffers.append(replace(root, id=at, kind="peer"))
        self.found[at] = Peer(root.id, axes, position)
        return self._viewed(values, operand, at)

    def _viewed(self, values: ValueTable, operand: int, root: int) -> int:
        """The buffer that is the same view of another root as the operand is of its own."""
        view = values.views.get(operand)
        if view is None:
            return root
        inner, at = self._viewed(values, view.operands[0], root), len(values.buffers)
        values.buffers.append(replace(values.buffers[operand], id=at, base=root))
        values.views[at] = replace(view, operands=(inner,), result=at)
        return at

    @property
    def homes(self) -> dict[int, int]:
        """The buffer of this coordinate, for each that stands for another's."""
        return {b: peer.root for b, peer in self.found.items()}

    def home(self, buffer: int) -> int:
        """The buffer of this coordinate that one stands for."""
        peer = self.found.get(buffer)
        return buffer if peer is None else peer.root


def peers_of(program: Program, values: ValueTable) -> Peers:
    """The sums over devices that kernels make, of what all devices have in memory."""
    peers = Peers()
    for x in program.instructions:
        if isinstance(x, Start) and (size := size_of_sum(program, x)):
            peers.add(values, x, size)
    return peers


def size_of_sum(program: Program, start: Start) -> int:
    """Over how many coordinates a collective sums what all of them have in memory; 0 for others."""
    op, mesh = start.op, program.mesh
    operand = program.buffers[start.operand]
    root = program.buffers[operand.root]
    if op.states != (Partial(), R) or mesh.leaves is not None:
        return 0
    axes = [mesh.axis(a) for a in op.axes]
    size = axes[0].size
    plain = len(axes) == 1 and axes[0].over == "space" and root.kind == "arena"
    plain &= not (root.home or program.buffers[start.result].home) and 0 not in root.shape
    narrow = operand.dtype.bytes < 4 and size > 2  # rounded after every addition
    return size if plain and operand.dtype.kind in "fiu" and size <= MOST and not narrow else 0


def alike(programs: Mapping[str, Program]) -> frozenset[str]:
    """The variables that are equal on all devices, in every program."""
    first = next(iter(programs.values()))
    axes = [a.name for a in first.mesh.space]
    return frozenset(
        name
        for name, t in first.variable_types.items()
        if axes and all(t.placement[a] == R for a in axes)
    )
