"""Collectives as data: how devices convert one state of a value into another, and in which order.

A conversion over space that sends something (graphc.ops.collective), the start of a collective in a
program and the call of a transport all say the same: two states and an order. The kind of the
collective follows from the states; a transport has one method for each.
"""

from __future__ import annotations

from enum import Enum

from graphc.ir.orders import Order
from graphc.ir.placement import Home, Partial, Replicated, Split, State
from graphc.support.dataclass import dataclass


class CollectiveKind(Enum):
    """What devices do together. The value is the name of a transport's method for it."""

    ALL_REDUCE = "all_reduce"
    REDUCE_SCATTER = "reduce_scatter"
    REDUCE = "reduce"
    BROADCAST = "broadcast"
    ALL_GATHER = "all_gather"
    ALL_TO_ALL = "all_to_all"
    BARRIER = "barrier"

    def __str__(self) -> str:
        return self.value


KINDS: dict[tuple[type[State], type[State]], CollectiveKind] = {
    (Partial, Replicated): CollectiveKind.ALL_REDUCE,
    (Partial, Split): CollectiveKind.REDUCE_SCATTER,
    (Partial, Home): CollectiveKind.REDUCE,
    (Home, Replicated): CollectiveKind.BROADCAST,
    (Split, Replicated): CollectiveKind.ALL_GATHER,
    (Split, Split): CollectiveKind.ALL_TO_ALL,
    (Replicated, Replicated): CollectiveKind.BARRIER,  # nothing is sent: everyone waits for all
}


@dataclass(frozen=True, slots=True)
class Collective:
    """Each member of a group has a value in state `source`, and gets it in state `target`.

    order: how partial values are added (graphc.ir.orders). Over devices, ADD_N is an order that the
    transport chooses, always the same one.
    """

    source: State
    target: State
    order: Order = Order.ADD_N

    @property
    def kind(self) -> CollectiveKind:
        return KINDS[type(self.source), type(self.target)]

    def __str__(self) -> str:
        order = "" if self.order is Order.ADD_N else f" in order {self.order}"
        return f"{self.kind} {self.source} -> {self.target}{order}"
