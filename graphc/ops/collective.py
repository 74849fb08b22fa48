"""Conversions of one placement into another: the nodes that partition inserts.

A conversion never changes the global value, so its reference kernel is the identity. Each says
what it converts, over space or over time, and the bytes that a device moves for it on n places
(ring algorithms; b is the bytes of the whole value along the axis). Where a ring begins or ends at
a home, n - 1 of the places pass the value on: what is told is the mean over all n.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from graphc.ir.op import Op, Shard, register, require
from graphc.ir.placement import Home, Partial, R, ReduceOp, Split, State
from graphc.ir.types import TensorType
from graphc.ops.carried import Carried
from graphc.ops.settle import Settle

if TYPE_CHECKING:
    from graphc.ir.op import Array


class Conversion(Carried):
    """Converts the state along one mesh axis."""

    axis: str
    conversion = True
    not_differentiable = "conversions are inserted after differentiation"
    over: ClassVar[str] = "space"
    communicates: ClassVar[bool] = True
    rounds: ClassVar[int] = 0  # how often the value goes round the ring of the places
    across: ClassVar[bool] = False  # may run over several axes, of space and of time

    @property
    @abstractmethod
    def states(self) -> tuple[State, State]:
        """The state along the axis before and after."""

    @property
    def how(self) -> str:
        """The order in which the places' values are added; '' is the engine's own."""
        return ""

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes that it runs over, major first: `axis` joins several by `+`."""
        return tuple(self.axis.split("+")) if self.across else (self.axis,)

    @property
    def along(self) -> str:
        """The axis that a split or home state of its is along; all others of several become R."""
        return str(self.attributes.get("on") or self.axis)

    def target(self, axis: str) -> State:
        """The state along one of its axes after it."""
        return self.states[1] if len(self.axes) == 1 or axis == self.along else R

    def traffic(self, n: int, b: float) -> float:
        """Bytes that a device sends, on average, for a value of b bytes on n places."""
        return self.rounds * (n - 1) / n * b

    def kept(self, turns: int) -> int:
        """How many values of the result's size it keeps over the turns of a loop."""
        return 1

    def settled(self, turns: int) -> Op:
        """What makes the result of the values that it keeps, where it keeps several."""
        raise AssertionError(f"{self.name} keeps one value")

    def for_each_use(self) -> Conversion:
        """The same conversion, made anew for each use, where that may save memory."""
        return self


# -- over space ----------------------------------------------------------------------------------


class WholeSum(Conversion):
    """P -> R: every place gets the sum (max, min), which may be made in place"""

    op: ReduceOp
    in_place = True
    rounds = 2

    @property
    def states(self) -> tuple[State, State]:
        return Partial(self.op), R


@register
class AllReduce(WholeSum):
    """P -> R over space: every place gets the sum (max, min), in the engine's own order"""

    axis: str
    op: ReduceOp = "sum"


@register
class TreeReduce(WholeSum):
    """P -> R over space, by a balanced binary tree over the places: the same order everywhere

    Over `data+leaf` the places are the leaves of the batch, and those without an example are left
    out (graphc.ir.leaf_tree): the turns of a device grow a forest, and the devices join theirs
    once.
    """

    axis: str
    op: ReduceOp = "sum"
    across = True

    @property
    def how(self) -> str:
        return "tree"


@register
class ChainReduce(WholeSum):
    """P -> R over space, by a running sum (max, min) from the first place to the last"""

    axis: str
    op: ReduceOp = "sum"

    @property
    def how(self) -> str:
        return "accumulate"


class SumInPart(Conversion):
    """P -> S, P -> H: some places get the sum, or each a part of it

    order: how the places' values are added, 'tree' or 'accumulate'; '' is the engine's own
    """

    order: str
    rounds = 1

    @property
    def how(self) -> str:
        return self.order


@register
class ReduceScatter(SumInPart):
    """P -> S(dim) over space: every place gets its part of the sum (max, min)

    order: how the places' values are added, 'tree' or 'accumulate'; '' is the engine's own. Over
    `data+leaf` it is the tree over leaves, and the parts are those of the axis `on`.
    """

    axis: str
    dim: int
    op: ReduceOp = "sum"
    order: str = ""
    on: str = ""
    across = True

    @property
    def states(self) -> tuple[State, State]:
        return Partial(self.op), Split(self.dim)


@register
class Reduce(SumInPart):
    """P -> H(k) over space: place k gets the sum (max, min)

    order: how the places' values are added, 'tree' or 'accumulate'; '' is the engine's own. Over
    `data+leaf` it is the tree over leaves, and the place is one of the axis `on`.
    """

    axis: str
    place: int
    op: ReduceOp = "sum"
    order: str = ""
    on: str = ""
    in_place = True
    across = True

    @property
    def states(self) -> tuple[State, State]:
        return Partial(self.op), Home(self.place)


@register
class Pull(Conversion):
    """H(k) -> R over space: every place gets what place k has, a broadcast"""

    axis: str
    place: int
    rounds = 1

    @property
    def states(self) -> tuple[State, State]:
        return Home(self.place), R


@register
class AllGather(Conversion):
    """S(dim) -> R over space: every place gets the parts of all; anew: for each use again"""

    axis: str
    dim: int
    anew: bool = False
    rounds = 1

    @property
    def states(self) -> tuple[State, State]:
        return Split(self.dim), R

    @property
    def per_use(self) -> bool:
        return self.anew

    def for_each_use(self) -> AllGather:
        return replace(self, anew=True)


@register
class AllToAll(Conversion):
    """S(source) -> S(target) over space: every place sends each other one its part"""

    axis: str
    source_dim: int
    target_dim: int

    @property
    def states(self) -> tuple[State, State]:
        return Split(self.source_dim), Split(self.target_dim)

    def traffic(self, n: int, b: float) -> float:
        return (n - 1) / n * b / n


@register
class TensorSplit(Conversion):
    """R -> S(dim) over space: every place keeps its slice, without traffic"""

    axis: str
    dim: int
    communicates = False

    @property
    def states(self) -> tuple[State, State]:
        return R, Split(self.dim)


@register
class ToPartial(Conversion):
    """R -> P over space: place 0 keeps the value, the others hold zero"""

    axis: str
    communicates = False

    @property
    def states(self) -> tuple[State, State]:
        return R, Partial()


# -- over time -----------------------------------------------------------------------------------


@register
class Accumulate(Conversion):
    """P -> R over time: the sum (max, min) over the turns

    order: 'accumulate' (one running sum), 'tree' (balanced pairs of turns, as a binary counter) or
    'add_n' (what every turn holds is kept, and added after the last).
    """

    axis: str
    op: ReduceOp = "sum"
    order: str = "accumulate"
    over = "time"
    communicates = False

    @property
    def states(self) -> tuple[State, State]:
        return Partial(self.op), R

    def kept(self, turns: int) -> int:
        return {"add_n": turns, "tree": turns.bit_length()}.get(self.order, 1)

    def settled(self, turns: int) -> Op:
        return Settle(self.order, turns, self.op)


@register
class Stack(Conversion):
    """S(dim) -> R over time: the turns' parts one after the other"""

    axis: str
    dim: int
    over = "time"
    communicates = False

    @property
    def states(self) -> tuple[State, State]:
        return Split(self.dim), R


@register
class Microbatch(Conversion):
    """R -> S(dim) over time: a slice for each turn"""

    axis: str
    dim: int
    over = "time"
    communicates = False

    @property
    def states(self) -> tuple[State, State]:
        return R, Split(self.dim)


class AcrossLoops(Carried):
    """Hands what a turn holds to the same turn of a later loop. The value is the same one."""

    conversion = True
    not_differentiable = "loops are told apart after differentiation"


@register
class Keep(AcrossLoops):
    """`y` is x, of which every turn writes its part down: memory for the parts of all turns"""


@register
class Recall(AcrossLoops):
    """`y` is what this turn of an earlier loop kept as x, or has of the input x, in loop `loop`"""

    loop: int


# -- padding -------------------------------------------------------------------------------------


@register
class Mask(Carried):
    """`y` is x with the padding along `dim` replaced by `fill`: a select, never a product"""

    dim: int
    fill: float
    conversion = True
    in_place = True
    positioned = 0
    linear = ((0,),)  # what takes a partial value is linear, so that its padding is filled with 0
    not_differentiable = "masks are inserted after differentiation"

    def infer(self, *types: TensorType) -> TensorType:
        require(0 <= self.dim < types[0].rank, f"mask: no dim {self.dim}", code="G0205")
        return TensorType(types[0].shape, types[0].dtype)

    def run_shard(self, shard: Shard, *xs: Array) -> Array:
        y = np.array(xs[0])
        y[(slice(None),) * self.dim + (slice(shard.lengths[self.dim], None),)] = self.fill
        return y

    @classmethod
    def samples(cls) -> Sequence[tuple[Op, str]]:
        return [(cls(0, 0.0), "f32[4,2]"), (cls(1, 7.0), "f32[2,3]")]
