"""Strategies: a few lines of data that say how a step's tensors lie on a mesh.

A strategy is a frozen record; `a * b` joins meshes. What it comes to is a `MeshLayout`, and that is
all the compiler ever sees of it: no pass knows a strategy's name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import prod
from typing import Any, ClassVar, NamedTuple, TypeAlias

from graphc.ir.op import snake
from graphc.ir.placement import Axis, Leaves, Mesh, State, Tiles
from graphc.support.errors import GraphcError

NO_MESH = Mesh()
NO_CUT = "*.none"  # the glob of a cut in which the compiler chose to leave every variable whole


KINDS = ("param", "state", "slot")


@dataclass(frozen=True)
class Longest:
    """Split along the longest dim that the axis divides, else along the longest.

    Dims that a rule cuts along another axis are left out; replicated where no other dim is as long
    as the axis.
    """


@dataclass(frozen=True)
class Balanced:
    """At home: variables are dealt over the first `homes` places, the largest first, each to the
    place that has the fewest bytes; a slot goes with its parameter."""

    homes: int = 1


Wish: TypeAlias = State | Longest | Balanced


@dataclass(frozen=True)
class Rule:
    """Along `axis`, the variables whose names match `glob` and that are of `kinds` have `state`.

    A slot goes by its parameter's name.
    """

    glob: str
    axis: str
    state: Wish
    kinds: tuple[str, ...] = KINDS


@dataclass(frozen=True)
class Grid:
    """The logical grid of a reproducible run: leaves of the batch, tiles of every split dim.

    It is fixed for a run and does not depend on the devices; they own cells of it. cut: globs of
    variables and the dims of theirs that are tiled; every dim of every variable where it is empty.
    """

    slots: int = 8
    tiles: int = 1
    cut: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        return f"a grid of {self.slots} slots"


@dataclass(frozen=True)
class Periodic:
    """Replicas step alone and meet every `every` steps; outer is applied to what they agree on."""

    every: int
    outer: Any = None

    def __str__(self) -> str:
        return f"replicas that meet every {self.every} steps"


@dataclass(frozen=True)
class Asynchronous:
    """Workers push gradients and don't wait; servers apply each as it comes.

    staleness: how many versions old the variables of a push may be; None is unbounded.
    """

    workers: int
    servers: int
    staleness: int | None

    def __str__(self) -> str:
        return "workers that don't wait for each other"


@dataclass(frozen=True)
class MeshLayout:
    """What a strategy says: the mesh, and the placement of what comes from outside.

    batch:     axes along which the batch is cut; where there is a grid, into leaves
    variables: rules for variables, the first that matches an axis wins; replicated otherwise
    gradients: rules for the gradients of the variables that match; as placing finds best otherwise
    orders:    (axis, order) pairs: how partial sums are added, where that is chosen
    choose:    axes along which the compiler chooses the cut of the variables itself
    local:     axes along which every place runs the step by itself, on its part of the batch
    grid:      the grid that fixes all sums, where the run is to be reproducible
    synchrony: how replicas meet, where that is not at every step
    eager:     axes along which gradients are cut in every turn, before the turns are added up;
               otherwise once, after it
    stored:    axes along which variables are cut only to be kept: for every use they are made
               whole, and let go again
    """

    mesh: Mesh = NO_MESH
    batch: tuple[str, ...] = ()
    variables: tuple[Rule, ...] = ()
    gradients: tuple[Rule, ...] = ()
    orders: tuple[tuple[str, str], ...] = ()
    choose: tuple[str, ...] = ()
    local: tuple[str, ...] = ()
    grid: Grid | None = None
    synchrony: Periodic | Asynchronous | None = None
    eager: tuple[str, ...] = ()
    stored: tuple[str, ...] = ()

    @property
    def model_axes(self) -> tuple[str, ...]:
        """The axes over space that cut variables, and not the batch."""
        return tuple(a.name for a in self.mesh.space if a.name not in self.batch)


class Strategy(ABC):
    """How a step is spread. Combine with `*`; print with `str`; compare with `==`."""

    @abstractmethod
    def layout(self, name: str) -> MeshLayout:
        """The layout on an axis called `name`."""

    usual_axis: ClassVar[str] = ""  # what it calls its axis, where the name is free
    axis: str = ""  # what the user calls it; a field of each strategy that has one

    @property
    def axis_name(self) -> str:
        """The name of its axis, numbered where another one has it."""
        return self.axis or self.usual_axis

    @property
    def parts(self) -> tuple[Strategy, ...]:
        """The strategies that this one is the product of."""
        return (self,)

    @cached_property
    def _named(self) -> tuple[NamedPart, ...]:
        return tuple(NamedPart(x, part, part.layout(x)) for x, part in _axis_names(self))

    @cached_property
    def _joined(self) -> MeshLayout:
        return _join(self, self._named)

    def with_cuts(self, cut: tuple[tuple[str, int], ...]) -> Strategy:
        """The same strategy with the cut of the variables that the compiler chose."""
        return self

    def __mul__(self, other: Strategy) -> Strategy:
        parts = tuple(p for p in self.parts + other.parts if not isinstance(p, OneDevice))
        return Product(parts) if len(parts) > 1 else (parts or (OneDevice(),))[0]

    def __str__(self) -> str:
        given = [(f.name, getattr(self, f.name), f.default) for f in fields(self)]  # type: ignore[arg-type]
        shown = [_argument(k, v, i) for i, (k, v, d) in enumerate(given) if i == 0 or v != d]
        return f"{snake(type(self).__name__)}({', '.join(shown)})"


def _argument(name: str, value: Any, position: int) -> str:
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        text = "{" + ", ".join(f'"{k}": {v}' for k, v in value) + "}"
    elif isinstance(value, tuple):
        text = f"[{', '.join(map(str, value))}]"
    else:
        text = f'"{value}"' if isinstance(value, str) else _literal(value)
    return text if position == 0 else f"{name}={text}"


def _literal(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class OneDevice(Strategy):
    """Everything on one device: the oracle of every other strategy."""

    def layout(self, name: str) -> MeshLayout:
        return MeshLayout()


@dataclass(frozen=True)
class Product(Strategy):
    """Several strategies at once, each on an axis of its own, the first one's axis the major."""

    factors: tuple[Strategy, ...] = ()

    @property
    def parts(self) -> tuple[Strategy, ...]:
        return self.factors

    def layout(self, name: str) -> MeshLayout:
        return layout_of(self)

    def __str__(self) -> str:
        return " * ".join(map(str, self.factors))


class NamedPart(NamedTuple):
    """A part of a strategy, the name of its axis, and its layout there."""

    axis: str
    strategy: Strategy
    layout: MeshLayout


def named_parts(strategy: Strategy) -> tuple[NamedPart, ...]:
    """The parts of a strategy, each on an axis of its own, equal names told apart.

    Raises G0402 for a name that the user gave to two axes, or that is none.
    """
    return strategy._named


def layout_of(strategy: Strategy) -> MeshLayout:
    """The layout of a strategy: the meshes of its parts joined, axes named apart.

    A strategy never changes, so it is worked out once, when it is first asked for. Raises G0402
    where two parts say how replicas meet, or give a grid; G0441, G0442 for what a grid can't hold.
    """
    return strategy._joined


def _axis_names(strategy: Strategy) -> list[tuple[str, Strategy]]:
    """The name of each part's axis, and the part."""
    given = [part.axis for part in strategy.parts if part.axis]
    for name in given:
        check(name.isidentifier(), f"{strategy}: '{name}' can't be the name of an axis")
        check(given.count(name) == 1, f"{strategy}: two axes are called '{name}'")
    taken = set(given)
    named = []
    for part in strategy.parts:
        base = name = part.axis_name
        number = 1
        while name in taken and not part.axis:
            number += 1
            name = f"{base}{number}"
        taken.add(name)
        named.append((name, part))
    return named


def _join(strategy: Strategy, parts: Sequence[NamedPart]) -> MeshLayout:
    layouts = [part.layout for part in parts]
    joined = MeshLayout(
        Mesh(_side_by_side(a for x in layouts for a in x.mesh.axes)),
        tuple(a for x in layouts for a in x.batch),
        tuple(r for x in layouts for r in x.variables),
        tuple(r for x in layouts for r in x.gradients),
        tuple(o for x in layouts for o in x.orders),
        tuple(a for x in layouts for a in x.choose),
        tuple(a for x in layouts for a in x.local),
        _only(strategy, (x.grid for x in layouts)),
        _only(strategy, (x.synchrony for x in layouts)),
        eager=tuple(a for x in layouts for a in x.eager),
        stored=tuple(a for x in layouts for a in x.stored),
    )
    if joined.grid is None:
        return joined
    leaf = next(part.axis for part in parts if part.layout.grid is not None)
    fixed = dict.fromkeys(joined.model_axes, "tree")  # sums over tiles are trees too
    chosen = tuple((dict(joined.orders) | fixed).items())
    return _on_grid(strategy, replace(joined, orders=chosen), joined.grid, leaf)


def _side_by_side(axes: Iterable[Axis]) -> tuple[Axis, ...]:
    """The axes, those over time behind the first of them: a loop runs over all of them together.

    A batch that is cut by time, space and time again could not be put together: over the last axis
    it would have to be whole before the first one is. Which examples a device has does not matter.
    """
    given = tuple(axes)
    first = next((i for i, a in enumerate(given) if a.over == "time"), 0)
    before, after = given[:first], given[first:]
    time = tuple(a for a in after if a.over == "time")
    return (*before, *time, *(a for a in after if a.over != "time"))


def _on_grid(strategy: Strategy, layout: MeshLayout, grid: Grid, leaf: str) -> MeshLayout:
    """The layout with its batch cut into the grid's leaves.

    The batch's axes over time become one, called `leaf`: how many microbatches were asked for only
    says who runs which leaves, and must not enter the program. It is the most minor axis, so that a
    device's leaves follow each other, and is there where a device has one leaf too: the program is
    the same for any number of devices. Raises G0441 where the leaves do not suffice, G0442 for
    replicas that do not meet at every step.
    """
    if layout.synchrony is not None or layout.local:
        message = f"{strategy}: replicas that step alone can't be reproducible on other devices"
        raise GraphcError("G0442", message, help="leave out reproducible(...)")
    cuts = [a for a in layout.mesh.axes if a.name in layout.batch]
    need, devices = prod(a.size for a in cuts), prod(a.size for a in cuts if a.over == "space")
    if need > grid.slots:
        message = (
            f"{strategy}: {need} parts of the batch (devices x microbatches), {grid.slots} slots"
        )
        help = f"write reproducible(slots={need}), or more; other slots give other bits"
        raise GraphcError("G0441", message, help=help)
    tiles = _tiles(layout, grid)
    dropped = {a.name for a in cuts if a.over == "time"}
    orders = tuple((a, order) for a, order in layout.orders if a not in dropped)
    layout = replace(layout, orders=orders)
    axes = tuple(a for a in layout.mesh.axes if a.name not in dropped)
    space = tuple(a.name for a in cuts if a.over == "space")
    if grid.slots == 1:  # the whole batch is the leaf: there is nothing to add up
        return replace(layout, mesh=Mesh(axes, tiles=tiles), batch=space)
    turns = Axis(leaf, -(-grid.slots // devices), "time")
    mesh = Mesh((*axes, turns), Leaves(grid.slots, (*space, leaf)), tiles)
    return replace(layout, mesh=mesh, batch=(*space, leaf))


def _tiles(layout: MeshLayout, grid: Grid) -> Tiles | None:
    """The tiles, where axes cut variables into parts that they make up."""
    names = layout.model_axes
    places = prod(layout.mesh.axis(a).size for a in names)
    return Tiles(grid.tiles, names) if names and grid.tiles % places == 0 else None


def _only(strategy: Strategy, found: Iterable[Any]) -> Any:
    given = [x for x in found if x is not None]
    check(len(given) < 2, f"{strategy}: {' and '.join(map(str, given))} can't both hold")
    return given[0] if given else None


def check(condition: bool, message: str) -> None:
    """Raise G0402 unless the condition on a strategy's arguments holds."""
    if not condition:
        raise GraphcError("G0402", message)
