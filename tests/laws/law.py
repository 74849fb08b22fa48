"""Law 1: a model on a mesh gives what it gives on one device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from laws.configs import Config, config, cuts
from laws.execute import Runner
from laws.generator import Data, data_for, make, recipe
from laws.recipe import Model, Recipe
from laws.simulate import Array, Results, evaluate

from graphc.compiler.pipeline import distribution, partitioning, run_passes
from graphc.ir.graph import Graph
from graphc.ir.types import F32, F64
from graphc.passes.base import Pass
from graphc.strategies import parse_strategy
from graphc.support.distance import distance, finite_distance, magnitude
from graphc.support.errors import GraphcError
from graphc.text import print_ir

DOUBLE = 1e-9  # of a tensor's largest value, in f64
CANCELS = 1e-6  # of the largest value on the way: a result below is what larger ones leave
SINGLE = 4  # times the error of one device, in f32
EPSILON = float(np.finfo(np.float32).eps)
TRIES = 100  # of shrinking
STRIDE = 1000  # seeds that one case may use up before it gives a model with good data


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

    @cached_property
    def placing(self) -> list[Pass]:
        strategy = parse_strategy(self.strategy)
        return [*distribution(strategy), *partitioning(strategy, self.config.short)]

    @cached_property
    def graph(self) -> Graph:
        """The graph that every rank runs."""
        return run_passes(self.model.graph, self.placing)


def case(seed: int, kinds: tuple[str, ...] = ()) -> Case:
    """The case of that seed. kinds: steps to draw often."""
    for attempt in range(seed * STRIDE, (seed + 1) * STRIDE):
        made, how = recipe(attempt, kinds=kinds), config(seed)
        if how.short and not make(made, how.batch, F64).paddable:
            continue
        if (data := data_for(made, how.valid)) is not None:
            return Case(made, how, data)
    raise AssertionError(f"no model with good data for case {seed}")


def check(c: Case, *runs: Runner, graph: Graph | None = None) -> None:
    """Raise Broken unless the case (or `graph` in its stead) obeys the law under every run."""
    graph = graph or c.graph
    data = c.data.cast(c.config.precision)
    for run in runs:
        compare(c, run(graph, c.counts, data.inputs, data.variables))


def compare(c: Case, found: Results) -> None:
    """Raise Broken unless the results are those of one device, up to rounding."""
    runs = [_parts(r) for r in _local_steps(c)] if c.config.dtype == "f32" else []
    for name, want in _parts(c.data.truth).items():
        mine = _parts(found)[name]
        alike = mine.shape == want.shape and mine.dtype.kind == want.dtype.kind
        if not alike or not _close(mine, want, [r[name] for r in runs], CANCELS * c.data.largest):
            raise Broken(f"{name} is\n{mine}\ninstead of\n{want}")


def _parts(r: Results) -> dict[str, Array]:
    outputs = {f"output '{k}'": v for k, v in r.outputs.items()}
    return outputs | {f"variable '{k}'": v for k, v in r.variables.items()}


def _local_steps(c: Case) -> list[Results]:
    """What one device makes of exactly the valid examples in f32: of the data, and of the data
    moved by a rounding, since one run of a scalar may be right by luck."""
    graph = make(c.recipe, c.config.valid, F32).graph
    rng = np.random.default_rng(c.recipe.seed)
    data = c.data.cast(F32)
    runs = []
    with np.errstate(all="ignore"):
        for size in (0, EPSILON, EPSILON, EPSILON):
            inputs, variables = (_moved(a, size, rng) for a in (data.inputs, data.variables))
            runs.append(evaluate(graph, inputs, variables)[0])
    return runs


def _moved(arrays: dict[str, Array], size: float, rng: np.random.Generator) -> dict[str, Array]:
    def moved(a: Array) -> Array:
        return np.asarray(a * (1 + size * rng.choice((-1, 1), a.shape)), a.dtype)

    return {k: moved(a) if a.dtype.kind == "f" else a for k, a in arrays.items()}


def _close(mine: Array, want: Array, alone: list[Array], least: float) -> bool:
    if mine.dtype.kind != "f":
        return bool(np.array_equal(mine, want))
    largest = max(least, magnitude(want))
    if not alone:
        allowed = DOUBLE * largest
    else:
        allowed = SINGLE * max(*(finite_distance(a, want) for a in alone), EPSILON * largest)
    return distance(mine, want) <= allowed


# -- shrinking ------------------------------------------------------------------------------------


def smallest(c: Case, fails: Callable[[Case], bool]) -> Case:
    """The case with as few steps as still fail, as far as a number of tries leads."""
    size, tries = len(c.recipe.steps) // 2, TRIES
    while size and tries:
        for start in range(len(c.recipe.steps) - 1, -1, -size):
            tries -= 1
            tried = _without(c, max(0, start - size + 1), start + 1)
            if tries > 0 and tried is not None and fails(tried):
                c = tried
                break
        else:
            size //= 2
        tries = max(0, tries)
    return c


def _without(c: Case, start: int, stop: int) -> Case | None:
    shorter = c.recipe.without(start, stop)
    if not any(s.kind == "start" for s in shorter.steps):
        return None
    if c.config.short and not make(shorter, c.config.batch, F64).paddable:
        return None
    data = data_for(shorter, c.config.valid)
    return replace(c, recipe=shorter, data=data) if data is not None else None


def holds(c: Case, *runs: Runner) -> None:
    """Check a case; where it fails, show the smallest one that fails too."""
    if _failure(c, runs) is None:
        return
    least = smallest(c, lambda tried: _failure(tried, runs) is not None)
    raise Broken(f"{_failure(least, runs)}\n\n{describe(least)}")


def _failure(c: Case, runs: Sequence[Runner]) -> str | None:
    try:
        check(c, *runs)
    except (AssertionError, GraphcError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def describe(c: Case) -> str:
    """The configuration and the text of the graph."""
    kinds = ", ".join(s.kind for s in c.recipe.steps)
    try:
        text = print_ir(c.graph)
    except GraphcError:
        text = print_ir(c.model.graph)
    return f"{c.config}\n{c.strategy}\nseed {c.recipe.seed}: {kinds}\n{text}"
