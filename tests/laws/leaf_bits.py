"""Law: under `reproducible` a step gives the same bits on any number of devices."""

from __future__ import annotations

import random
from dataclasses import dataclass

from laws.execute import backend_of, execute
from laws.generator import Data, data_for, make, recipe
from laws.recipe import Model, Recipe
from laws.simulate import Results

from graphc.compiler.pipeline import distribution, partitioning, run_passes
from graphc.ir.graph import Graph
from graphc.ir.types import DTYPES, F64
from graphc.runtime.backends.backend import Backend
from graphc.strategies import parse_strategy
from graphc.support.distance import distance

STRIDE = 1000  # seeds that one case may use up
SLOTS = (1, 2, 3, 4, 5, 8, 13)
DEVICES = (2, 3, 5)


class Differ(AssertionError):
    """A result that is not the same on two numbers of devices."""


@dataclass(frozen=True)
class Case:
    """A model of so many examples, of which `valid` come, in `slots` leaves."""

    recipe: Recipe
    data: Data
    batch: int
    valid: int
    slots: int
    dtype: str

    @property
    def model(self) -> Model:
        return make(self.recipe, self.batch, DTYPES[self.dtype])

    @property
    def backend(self) -> Backend:
        return backend_of(self.recipe.seed)

    def strategies(self) -> list[str]:
        """One device first, then those that have room for their parts in the grid."""
        grid = f"reproducible({self.slots})"
        found = [grid]
        for n in DEVICES:
            if n <= self.slots:
                found.append(f"mirrored({n}) * {grid}")
        if self.slots >= 4:
            found.append(f"accumulate(2) * mirrored(2) * {grid}")
            found.append(f"mirrored(2) * mirrored(2) * {grid}")
            found.append(f"multi_worker_mirrored(2, 2) * {grid}")
        found += [f"{s} * {grid}" for s in self._kept() if self.slots >= 3]
        if self.slots >= 6:
            found.append(f"mirrored(2) * zero(3) * {grid}")
            found.append(f"zero(3, stage=3) * central_storage(2) * {grid}")
        return found

    def _kept(self) -> list[str]:
        """Two strategies that keep variables, and their gradients, in parts or at home."""
        kept = [f"zero({n}, stage={k})" for n in (2, 3) for k in (1, 2, 3)]
        kept += ["central_storage(3)", "parameter_server(3, 2)"]
        return random.Random(f"kept {self.recipe.seed}").sample(kept, 2)

    def graph(self, strategy: str) -> Graph:
        """The graph that every rank runs."""
        s = parse_strategy(strategy)
        passes = [*distribution(s), *partitioning(s, self.valid < self.batch)]
        return run_passes(self.model.graph, passes)

    def run(self, strategy: str) -> Results:
        """What a strategy makes of the data, with padding that must not be used."""
        graph, data = self.graph(strategy), self.data.cast(DTYPES[self.dtype])
        counts, short = {"batch": self.valid}, self.valid < self.batch
        return execute(
            graph, counts, data.inputs, data.variables, backend=self.backend, short=short
        )


def case(seed: int) -> Case:
    """The case of that seed."""
    rng = random.Random(f"bits {seed}")
    for attempt in range(seed * STRIDE, (seed + 1) * STRIDE):
        made, batch = recipe(attempt), rng.choice((4, 7, 12, 20))
        paddable = make(made, batch, F64).paddable
        valid = rng.randint(1, batch) if paddable and rng.random() < 0.6 else batch
        if not _alike(made, batch, valid):
            continue
        if (data := data_for(made, valid)) is not None:
            return Case(made, data, batch, valid, rng.choice(SLOTS), rng.choice(("f32", "f64")))
    raise AssertionError(f"no model with good data for case {seed}")


def _alike(made: Recipe, batch: int, valid: int) -> bool:
    """Whether a recipe's model is the same but for the length of the batch: a feature dim may
    happen to be as long as the batch."""
    whole, short = (make(made, n, F64).graph for n in (batch, valid))
    one, other = ([(v.name, v.type) for v in g.variables.values()] for g in (whole, short))
    return one == other and list(whole.inputs) == list(short.inputs)


def check(c: Case) -> None:
    """Raise Differ unless all strategies give the same bits."""
    first, *others = c.strategies()
    want = c.run(first)
    for strategy in others:
        compare(c.run(strategy), want, f"{strategy} against {first}: {c}")


def compare(found: Results, want: Results, where: str) -> None:
    """Raise Differ at the first result that is not bit for bit the same."""
    for kind in ("outputs", "variables"):
        mine, theirs = getattr(found, kind), getattr(want, kind)
        assert list(mine) == list(theirs)
        for name, x in mine.items():
            if x.tobytes() != theirs[name].tobytes():
                gap = distance(x, theirs[name])
                raise Differ(f"{kind} '{name}' differ by {gap}: {where}")
