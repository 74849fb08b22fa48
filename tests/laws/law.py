"""Law 1: a model on a mesh gives what it gives on one device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from laws.barriers import has_barrier
from laws.configs import Config, config, cuts
from laws.generator import Data, data_for, make, recipe
from laws.recipe import Model, Recipe
from laws.simulate import Array, Disagreement, Results, evaluate, simulate

from graphc.errors import GraphcError
from graphc.graph import Graph
from graphc.passes.base import Pass
from graphc.passes.pipeline import distribution, partitioning, run_passes
from graphc.strategy import parse_strategy
from graphc.text import print_ir
from graphc.types import F64

DOUBLE = 1e-9  # of a tensor's largest value, in f64
SINGLE = 4  # times the error of one device, in f32
STRIDE = 1000  # seeds that one case may use up before it gives a model with good data

Runner = Callable[[Graph, dict[str, int], dict[str, Array], dict[str, Array]], Results]


class Broken(AssertionError):
    """A model and a configuration that break the law."""


@dataclass(frozen=True)
class Case:
    """A model, its data and its configuration."""

    recipe: Recipe
    config: Config
    data: Data

    @cached_property
    def model(self) -> Model:
        return make(self.recipe, self.config.batch, self.config.precision)

    @property
    def strategy(self) -> str:
        return self.config.strategy(cuts(self.model.graph, self.config.parts, self.recipe.seed))

    @property
    def counts(self) -> dict[str, int]:
        return {"batch": self.config.valid}

    def partitioned(self, before: Sequence[Pass] = (), after: Sequence[Pass] = ()) -> Graph:
        """The graph that every rank runs, the passes `before` placing and `after` it included."""
        strategy = parse_strategy(self.strategy)
        placing = [*distribution(strategy), *partitioning(strategy, self.config.short)]
        return run_passes(self.model.graph, [*before, *placing, *after])


def case(seed: int) -> Case:
    """The case of that seed."""
    for attempt in range(seed * STRIDE, (seed + 1) * STRIDE):
        made, how = recipe(attempt), config(seed)
        if how.short and not make(made, how.batch, F64).paddable:
            continue
        if (data := data_for(made, how.valid)) is not None:
            return Case(made, how, data)
    raise AssertionError(f"no model with good data for case {seed}")


def check(c: Case, run: Runner = simulate) -> str:
    """Raise Broken unless the case obeys the law; 'ran', or 'barrier' where it can't be run."""
    try:
        graph = c.partitioned()
    except GraphcError as error:
        if error.code == "G0403" and c.config.turns > 1 and has_barrier(c.model.graph):
            return "barrier"
        raise
    data = c.data.cast(c.config.precision)
    compare(c, run(graph, c.counts, data.inputs, data.variables))
    return "ran"


def compare(c: Case, found: Results) -> None:
    """Raise Broken unless the results are those of one device, up to rounding."""
    own = c.data.truth if c.config.dtype == "f64" else _alone(c)
    for what, truth, alone, mine in zip(
        ("output", "variable"), _parts(c.data.truth), _parts(own), _parts(found), strict=True
    ):
        for name, want in truth.items():
            if not _close(mine[name], want, alone[name], c.config):
                raise Broken(f"{what} '{name}' is\n{mine[name]}\ninstead of\n{want}")


def _parts(r: Results) -> tuple[dict[str, Array], dict[str, Array]]:
    return r.outputs, r.variables


def _alone(c: Case) -> Results:
    """What one device makes of exactly the valid examples, in the case's precision."""
    data = c.data.cast(c.config.precision)
    graph = make(c.recipe, c.config.valid, c.config.precision).graph
    with np.errstate(all="ignore"):
        return evaluate(graph, data.inputs, data.variables)[0]


def _close(mine: Array, want: Array, alone: Array, how: Config) -> bool:
    if mine.shape != want.shape or mine.dtype != alone.dtype:
        return False
    if mine.dtype.kind != "f":
        return bool(np.array_equal(mine, want))
    largest = np.abs(want).max(initial=0)
    if how.dtype == "f64":
        allowed = DOUBLE * largest
    else:
        # One device may be right by luck, so that its error is taken as some roundings at least.
        luck = 4 * np.finfo(np.float32).eps * largest
        allowed = SINGLE * max(np.abs(alone - want).max(initial=0), luck)
    return bool((np.abs(mine.astype(np.float64) - want) <= allowed).all())


# -- shrinking ------------------------------------------------------------------------------------


def smallest(c: Case, fails: Callable[[Case], bool]) -> Case:
    """The case with as few steps as still fail."""
    size = len(c.recipe.steps) // 2
    while size:
        for start in range(len(c.recipe.steps) - 1, -1, -size):
            tried = _without(c, max(0, start - size + 1), start + 1)
            if tried is not None and fails(tried):
                c = tried
                break
        else:
            size //= 2
    return c


def _without(c: Case, start: int, stop: int) -> Case | None:
    shorter = c.recipe.without(start, stop)
    if not any(s.kind == "start" for s in shorter.steps):
        return None
    if c.config.short and not make(shorter, c.config.batch, F64).paddable:
        return None
    data = data_for(shorter, c.config.valid)
    return replace(c, recipe=shorter, data=data) if data is not None else None


def holds(c: Case, run: Runner = simulate) -> None:
    """Check a case; where it fails, show the smallest one that fails too."""
    try:
        check(c, run)
    except (Broken, Disagreement, AssertionError, GraphcError):
        least = smallest(c, lambda tried: _fails(tried, run))
        try:
            check(least, run)
        except (Broken, Disagreement, AssertionError, GraphcError) as error:
            raise Broken(f"{error}\n\n{describe(least)}") from None
        raise


def _fails(c: Case, run: Runner) -> bool:
    try:
        check(c, run)
    except (Broken, Disagreement, AssertionError, GraphcError):
        return True
    return False


def describe(c: Case) -> str:
    """The configuration and the text of the graph."""
    kinds = ", ".join(s.kind for s in c.recipe.steps)
    try:
        text = print_ir(c.partitioned())
    except GraphcError:
        text = print_ir(c.model.graph)
    return f"{c.config}\n{c.strategy}\nseed {c.recipe.seed}: {kinds}\n{text}"
