"""Collectives as data: how devices convert one state of a value into another, and in which order.

A conversion over space that sends something (graphc.ops.collective), the start of a collective in a
program and the call of a transport all say the same: two states and an order. The kind of the
collective follows from the states; a transport has one method for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from graphc.ir.orders import Order
from graphc.ir.placement import Home, Partial, Replicated, Split, State


class CollectiveKind(Enum):
    """The kinds of collectives, each with the types of the states that it converts."""

    ALL_REDUCE = Partial, Replicated
    REDUCE_SCATTER = Partial, Split
    REDUCE = Partial, Home
    BROADCAST = Home, Replicated
    ALL_GATHER = Split, Replicated
    ALL_TO_ALL = Split, Split
    BARRIER = Replicated, Replicated  # nothing is sent: everyone waits for all

    def __str__(self) -> str:
        return self.name.lower()


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
        return CollectiveKind((type(self.source), type(self.target)))

    def __str__(self) -> str:
        order = "" if self.order is Order.ADD_N else f" in order {self.order}"
        return f"{self.kind} {self.source} -> {self.target}{order}"
