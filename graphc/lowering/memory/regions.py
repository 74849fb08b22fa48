"""Regions: what runs between two instructions of the host, and when it uses which memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from graphc.lowering.fusion.build import Built
from graphc.lowering.fusion.fuse import Group
from graphc.lowering.fusion.precedence import Precedence
from graphc.lowering.kernel.lowered import Home, Host, Turn
from graphc.lowering.memory.offsets import Timeline
from graphc.lowering.nodes.nodes import LoopNode
from graphc.lowering.program.program import Instruction, Start, Wait

TURNS: tuple[Turn, ...] = ("first", "later")


@dataclass
class Region:
    """Nodes between two instructions of the host, run by the same coordinates.

    If a loop accumulates, its first turn and the later turns each have a form of the region.
    """

    nodes: list[LoopNode] = field(default_factory=list)
    turn: Turn = "any"
    home: Home = ()
    groups: list[Group] = field(default_factory=list)
    order: Precedence = field(default_factory=Precedence)  # of the groups
    built: list[tuple[Built, str]] = field(default_factory=list)


Item = Region | Host


def timeline_of(
    parts: Sequence[Sequence[Item]],
    home: Callable[[int], int],
    of_host: Callable[[Instruction], Iterable[int]],
) -> Timeline:
    """What the parts of a program touch, and when.

    home: the own buffer that lies where a kernel's buffer does; of_host: what the host touches
    """
    made = _Positions(home, of_host)
    for number, part in enumerate(parts):
        apart = any(x.turn != "any" for x in part if isinstance(x, Region))
        turns = tuple(made.turn(part, turn) for turn in (TURNS if apart else TURNS[:1]))
        if number % 2 and number < len(parts) - 1:
            made.timeline.loops.append(turns)
    return made.timeline


@dataclass
class _Positions:
    home: Callable[[int], int]
    of_host: Callable[[Instruction], Iterable[int]]
    timeline: Timeline = field(default_factory=Timeline)
    begun: dict[int, tuple[int, Start]] = field(default_factory=dict)

    def turn(self, part: Sequence[Item], turn: Turn) -> range:
        """Go through a part once, as a turn does."""
        start = len(self.timeline.touched)
        for item in part:
            if isinstance(item, Host):
                self.host(item.instruction)
            elif item.turn in ("any", turn):
                for built, _ in item.built:
                    self.timeline.add(map(self.home, built.buffers))
        return range(start, len(self.timeline.touched))

    def host(self, x: Instruction) -> None:
        """One more position; a collective needs its buffers until it is waited for."""
        at = self.timeline.add(self.of_host(x))
        match x:
            case Start(token=token):
                self.begun[token] = at, x
            case Wait(token=token):
                since, start = self.begun.pop(token)
                self.timeline.spans += [(b, since, at) for b in self.of_host(start)]
