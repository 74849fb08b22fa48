"""What a plan promises of its numbers: the same bits on other devices, or equality up to rounding.

Only a grid fixes every sum: without one, or where an engine adds in an order of its own, the result
depends on the devices by rounding. The same bits hold for one set of kernels, which a run names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from graphc.ir.orders import Order
from graphc.ir.placement import Partial
from graphc.lowering.program.program import Kernel, Program, Start
from graphc.ops.collective import Conversion
from graphc.strategies import Strategy, layout_of
from graphc.support.dataclass import dataclass

SHOWN = 3  # sums that are named where there are more


@dataclass(frozen=True)
class Determinism:
    """bits: 'same bits', 'equal up to rounding', or 'none' where replicas step alone.

    most: the most devices that it holds for; breaks: what breaks the stronger promise.
    """

    bits: str
    most: int = 0
    breaks: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """The promise as plain JSON values, for the meta of a plan."""
        return {"bits": self.bits, "most": self.most, "breaks": list(self.breaks)}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Determinism:
        """What `plain` gave."""
        return cls(plain["bits"], plain["most"], tuple(plain["breaks"]))

    def __str__(self) -> str:
        if not self.breaks:
            return f"{self.bits} on 1 to {self.most} devices"
        promise = "no promise of bits" if self.bits == "none" else self.bits
        return f"{promise}: {'; '.join(self.breaks)}"


def determinism_of(strategy: Strategy, programs: Iterable[Program]) -> Determinism:
    """What a strategy's programs promise of their bits."""
    layout = layout_of(strategy)
    if layout.synchrony is not None or layout.local:
        why = "replicas run independently, so the result depends on their number"
        return Determinism("none", 0, (why,))
    sums = tuple(dict.fromkeys(x for p in programs for x in _open_sums(p)))
    more = (f"and {len(sums) - SHOWN} more",) if len(sums) > SHOWN else ()
    if layout.grid is None:
        why = "no reproducible(slots) in the strategy"
        return Determinism("equal up to rounding", 0, (why, *sums[:SHOWN], *more))
    most = layout.grid.slots * layout.grid.tiles
    if sums:
        return Determinism("equal up to rounding", 0, (*sums[:SHOWN], *more))
    return Determinism("same bits", most)


def _open_sums(program: Program) -> Iterator[str]:
    """The sums whose order depends on the devices."""
    for x in program.instructions:
        if isinstance(x, Kernel | Start) and isinstance(x.op, Conversion):
            source, _ = x.op.states
            if source == Partial() and not _is_fixed(x.op, program):
                axes = " and ".join(x.op.axes)
                yield f"%{x.node} = {x.op.name} adds in an order that depends on {axes}"


def _is_fixed(op: Conversion, program: Program) -> bool:
    """Whether a sum is the same tree on any mesh: over leaves, or over the blocks of tiles."""
    size = 1
    for name in op.axes:
        size *= program.mesh.axis(name).size
    return op.order is Order.TREE or size == 1
