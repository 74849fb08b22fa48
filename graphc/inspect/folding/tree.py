"""The tree of groups: what may be one box of a picture."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import cached_property

from graphc.analysis.traffic import sent_in_step
from graphc.inspect.folding.items import Item
from graphc.inspect.scene import Kind, ScenePart
from graphc.ir.graph import Graph
from graphc.support.dataclass import dataclass


class Level(Enum):
    """How much of a graph a picture shows, the coarsest first.

    MODEL:  the layers, what is repeated once with a count, collectives by kind, one box for each
            optimizer
    LAYERS: layers in layers, composites such as softmax, the update of each variable
    OPS:    every value but those that are drawn on edges: constants, broadcasts, casts
    VALUES: every value, as the text of the graph has them
    """

    MODEL = "model"
    LAYERS = "layers"
    OPS = "ops"
    VALUES = "values"

    def __le__(self, other: Level) -> bool:
        return _ORDER[self] <= _ORDER[other]


_ORDER = {level: i for i, level in enumerate(Level)}


class Fold(Enum):
    """Why the members of a group are one box."""

    SCOPE = "scope"  # one call of a function or a layer
    COMPOSITE = "composite"  # one call of a composite, such as softmax
    STATEMENT = "statement"  # one line of the source
    RUN = "run"  # lines that follow each other
    REPEAT = "repeat"  # parts of the same structure that follow each other, each a member
    INSTANCE = "instance"  # one of these, where it consists of several groups
    EXCHANGE = "exchange"  # collectives of one kind over the same axes
    UPDATES = "updates"  # all that one step of an optimizer computes
    UPDATE = "update"  # of it, what is for one variable
    SHARED = "shared"  # of it, what is for several variables
    ENDS = "ends"  # outputs, or written states, or inputs, or variables
    LEAF = "leaf"  # a single value, or a single result


@dataclass(frozen=True)
class BoxGroup:
    """A group of values, or a single one (`fold` is LEAF).

    id:       unique, and the same for the same graph: a path of scopes, or the name of a value
    title:    what it is called, in a few words
    kind:     what its box stands for
    part:     the part of the step that it belongs to
    parent:   the index of the group around it; -1 for the root
    children: the indices of the groups in it, in the order of the graph
    item:     the index of the value, for a leaf; else -1
    first:    the index of the first value in it
    count:    how many parts of the same structure it holds, or collectives, or variables; else 1
    opens:    the coarsest level at which it is open; None: a leaf never is
    """

    id: str
    title: str
    fold: Fold
    kind: Kind
    part: ScenePart
    parent: int
    children: tuple[int, ...] = ()
    item: int = -1
    first: int = 0
    count: int = 1
    opens: Level | None = None


@dataclass(frozen=True)
class GroupTree:
    """All groups of a graph. Group 0 is the root; a group stands after the one around it.

    items: what there is to draw, in topological order: values, then results
    leaf:  the group of each item; -1 for an item that is drawn on an edge
    """

    graph: Graph
    items: Sequence[Item]
    groups: Sequence[BoxGroup]
    leaf: Sequence[int]

    @cached_property
    def index(self) -> dict[str, int]:
        """The groups by id."""
        return {group.id: i for i, group in enumerate(self.groups)}

    @cached_property
    def members(self) -> list[list[int]]:
        """The items of each group, in order."""
        members: list[list[int]] = [[] for _ in self.groups]
        for item, leaf in enumerate(self.leaf):
            while leaf >= 0:
                members[leaf].append(item)
                leaf = self.groups[leaf].parent
        return members

    @cached_property
    def sent(self) -> dict[str, float]:
        """The bytes that a device sends in a step for each collective, by node."""
        return sent_in_step(self.graph)
