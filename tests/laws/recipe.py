"""Recipes: a random training step as a list of steps that can be replayed and shortened.

A step is a kind and a few integers, from which it makes its choices. Any sublist of a recipe is a
recipe: a step whose choices fit nothing makes nothing. The same recipe gives the same model for
every batch size and dtype, and a failing one is shrunk by leaving steps out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

from graphc.ir.builder import Builder, Value
from graphc.ir.graph import Graph, Variable
from graphc.ir.op import op_named
from graphc.ir.types import I32, DType, Extent, TensorType

T = TypeVar("T")
Symbol: TypeAlias = int | Extent  # the length of a dim, whatever the batch size
BATCH = Extent("batch")
LONGEST = 400  # entries that an example of a value may have


@dataclass(frozen=True)
class Step:
    """`kind(choices)`."""

    kind: str
    choices: tuple[int, ...]


@dataclass(frozen=True)
class Recipe:
    """A model: its steps, and the seed of its data."""

    seed: int
    steps: tuple[Step, ...]

    def without(self, start: int, stop: int) -> Recipe:
        return replace(self, steps=self.steps[:start] + self.steps[stop:])


@dataclass
class Picks:
    """The choices of a step, taken one after the other; 0 when they are used up."""

    choices: Sequence[int]
    used: int = 0

    def number(self, n: int) -> int:
        """A number below n."""
        self.used += 1
        return self.choices[self.used - 1] % n if self.used <= len(self.choices) else 0

    def of(self, options: Sequence[T]) -> T:
        return options[self.number(len(options))]

    def chance(self, n: int) -> bool:
        """True once in n times (never when the choices are used up)."""
        return self.number(n) == n - 1

    def some(self, options: Sequence[T]) -> list[T]:
        """A part of the options, at least one, in their order."""
        bits = 1 + self.number(2 ** len(options) - 1)
        return [x for i, x in enumerate(options) if bits >> i & 1]

    def order(self, n: int) -> tuple[int, ...]:
        """A permutation of 0 .. n-1."""
        left = list(range(n))
        return tuple(left.pop(self.number(len(left))) for _ in range(n))


@dataclass(frozen=True)
class Ids:
    """An integer input, whose entries lie below `limit`."""

    value: Value
    limit: int


@dataclass
class Maker:
    """A model under construction.

    pool:   float values that differ from example to example
    params: the parameters read so far
    stats:  float values of the whole batch, or of parameters only
    """

    f: Builder
    batch: int
    dtype: DType
    pool: list[Value] = field(default_factory=list)
    params: list[Value] = field(default_factory=list)
    stats: list[Value] = field(default_factory=list)
    ids: list[Ids] = field(default_factory=list)
    terms: list[Value] = field(default_factory=list)
    limits: dict[str, int] = field(default_factory=dict)  # of integer inputs, by name
    finish: tuple[int, ...] = ()  # choices of optimizer and order

    # -- values ---------------------------------------------------------------------------------

    def input(self, dims: Sequence[Symbol], dtype: DType) -> Value:
        name = f"x{len(self.f.nodes)}"
        op = op_named("input")(source_name=name)  # type: ignore[call-arg]
        extents = tuple(d if isinstance(d, Extent) else None for d in dims)
        shape = tuple(self.length(d) for d in dims)
        return self.f.add(op, type=TensorType(shape, dtype, extents), name=name)

    def integers(self, dims: Sequence[Symbol], limit: int) -> Ids:
        made = Ids(self.input(dims, I32), limit)
        self.limits[made.value.name] = limit
        self.ids.append(made)
        return made

    def param(self, pick: Picks, *shape: int) -> Value:
        """A parameter of that shape: a new one, or one that is there already."""
        same = [p for p in self.params if p.shape == shape]
        if same and pick.chance(3):
            return pick.of(same)
        name = f"{'w' if len(shape) > 1 else 'b'}{len(self.params)}"
        value = self.f.declare(Variable(name, TensorType(shape, self.dtype)))
        self.params.append(value)
        return value

    def length(self, d: Symbol) -> int:
        return self.batch * d.unit if isinstance(d, Extent) else d

    def add(self, *values: Value) -> None:
        """Take values into the pool, unless they are large."""
        for value in values:
            if per_example(value) <= LONGEST and value.rank <= 5:
                self.pool.append(value)

    def any(self, pick: Picks, fits: Callable[[Value], bool] | None = None) -> Value | None:
        """A value of the pool, the later ones more often."""
        fitting = [v for v in self.pool if fits is None or fits(v)]
        if not fitting:
            return None
        recent = fitting[-3:]
        return pick.of(fitting) if pick.chance(3) else pick.of(recent)


def symbols(v: Value) -> tuple[Symbol, ...]:
    """The dims of a value, a run-time length by its extent."""
    return tuple(v.type.extent(d) or n for d, n in enumerate(v.shape))


def features(v: Value) -> list[int]:
    """The dims that are not the batch's."""
    return [d for d in range(v.rank) if v.type.extent(d) is None]


def batches(v: Value) -> list[int]:
    """The dims that hold the batch."""
    return [d for d in range(v.rank) if v.type.extent(d) is not None]


def per_example(v: Value) -> int:
    """How many entries a value has for every example."""
    n = 1
    for d in symbols(v):
        n *= d.unit if isinstance(d, Extent) else d
    return n


@dataclass(frozen=True)
class Model:
    """A recipe made: the graph, and what its data must be like."""

    graph: Graph
    limits: dict[str, int]
    paddable: bool  # whether the batch may be short


StepMaker: TypeAlias = Callable[[Maker, Picks], None]


def random_recipe(seed: int, weights: dict[str, float], most: int) -> Recipe:
    """The recipe of that seed: an input, up to `most` steps, a loss and an optimizer."""
    rng = random.Random(seed)
    kinds, shares = zip(*weights.items(), strict=True)
    middle = rng.choices(kinds, shares, k=rng.randint(min(3, most), most))
    names = ["start", *middle, "loss", *(["loss"] if rng.random() < 0.3 else []), "optimizer"]
    steps = (Step(k, tuple(rng.randrange(10**6) for _ in range(10))) for k in names)
    return Recipe(seed, tuple(steps))
