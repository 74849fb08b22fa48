"""Per-replica code on a mesh is what every replica computes on its own part of the batch."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from laws import replicated
from laws.execute import runner
from laws.generator import Data, data_for, make, recipe
from laws.parts import ByParts, rows
from laws.recipe import Recipe
from laws.simulate import Results, simulate
from shares import every

from graphc.compiler.pipeline import differentiation, distribution, partitioning, run_passes
from graphc.ir.graph import Graph
from graphc.ir.types import F64
from graphc.passes.differentiation.resolve import Resolve
from graphc.passes.placing.per_replica import replica_axes
from graphc.runtime.backends import plugins
from graphc.strategies import layout_of, parse_strategy
from graphc.support.distance import within
from graphc.support.errors import GraphcError, GraphcWarning

STRATEGIES = (
    "one_device()", "mirrored(2)", "mirrored(3)", 'mirrored(2, reduce="tree")', "accumulate(2)",
    "mirrored(2) * accumulate(3)", "accumulate(2) * mirrored(2)", "mirrored(2) * tensor_split(2)",
    "zero(2, stage=3)", "central_storage(2)", "reproducible(4)", "mirrored(3) * reproducible(4)",
    "zero(2, stage=3) * reproducible(4)",
)  # fmt: skip
SEEDS = range(60)
TOLERANCE = 1e-9
SLOPE = 1e-5
BATCH, VALID = 7, 5


@pytest.fixture(autouse=True)
def means_of_means_are_meant() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphcWarning)
        yield


def drawn(seed: int) -> tuple[Recipe, Data] | None:
    """A model with per-replica code, and data on which it is smooth on one device."""
    made = recipe(seed, kinds=replicated.KINDS)
    data = data_for(made, VALID)
    return (made, data) if data is not None else None


def graph_of(made: Recipe, batch: int) -> Graph:
    return Resolve().run(make(made, batch, F64).graph)


def truth(made: Recipe, data: Data, strategy: str) -> Results:
    """What the replicas of a strategy compute, each on its part of exactly the valid examples."""
    layout = layout_of(parse_strategy(strategy))
    leaves = layout.mesh.leaves
    sizes = [leaves.slots] if leaves else [a.size for a in replica_axes(layout)]
    parts = [part for part in rows(VALID, sizes) if part or not leaves]  # absent leaves are none
    # The tail of the batch's padding does not move the cut: parts are as long as the static ones.
    graph = graph_of(made, VALID)
    return ByParts(graph, parts).run(data.inputs, data.variables)[0]


def placed(made: Recipe, strategy: str, short: bool) -> Graph | None:
    how = parse_strategy(strategy)
    passes = [*distribution(how), *partitioning(how, short)]
    try:
        return run_passes(graph_of(made, BATCH if short else VALID), passes)
    except GraphcError as error:
        assert error.code == "G0403", error
        return None


def agree(found: Results, want: Results, data: Data, what: str) -> None:
    for mine, theirs in ((found.outputs, want.outputs), (found.variables, want.variables)):
        for name, x in theirs.items():
            assert within(mine[name], x, TOLERANCE, 1e-6 * data.largest), f"{what}: {name}"


@pytest.mark.parametrize("seeds", every(8, [SEEDS[i::8] for i in range(8)]))
def test_per_replica_code_on_a_mesh_is_what_every_replica_computes(seeds: range) -> None:
    checked = 0
    for seed in seeds:
        found = drawn(seed)
        strategy = random.Random(seed).choice(STRATEGIES)
        if found is None:
            continue
        for short in (False, True):
            graph = placed(found[0], strategy, short)
            if graph is not None:
                result = simulate(graph, {"batch": VALID}, found[1].inputs, found[1].variables)
                agree(result, truth(*found, strategy), found[1], f"{seed} {strategy} {short}")
                checked += 1
    assert checked > len(seeds)


@pytest.mark.parametrize("seeds", every(2, (SEEDS[::12], SEEDS[6::12])))
@pytest.mark.parametrize("backend", ["numpy", "reference"])
def test_per_replica_code_runs_as_it_is_simulated(backend: str, seeds: range) -> None:
    for seed in seeds:
        found = drawn(seed)
        strategy = random.Random(seed).choice(STRATEGIES)
        graph = found and placed(found[0], strategy, seed % 2 == 0)
        if found is None or graph is None:
            continue
        run = runner(plugins.backend(backend), seed % 2 == 0)
        result = run(graph, {"batch": VALID}, found[1].inputs, found[1].variables)
        agree(result, truth(*found, strategy), found[1], f"{seed} {strategy}")


GRID = "reproducible(4)"
DEALT = ("mirrored(2)", "mirrored(3)", "accumulate(2) * mirrored(2)", "zero(2, stage=3)",
         "central_storage(3)")  # fmt: skip


@pytest.mark.one_in(1)
@pytest.mark.parametrize("seeds", every(2, (SEEDS[::8], SEEDS[4::8])))
@pytest.mark.parametrize("backend", every(2, ["reference", "numpy"]))
def test_per_replica_code_has_the_same_bits_on_any_number_of_devices(
    backend: str, seeds: range
) -> None:
    checked = 0
    for seed in seeds:
        found, short = drawn(seed), seed % 3 == 0
        whole = found and placed(found[0], GRID, short)
        if found is None or whole is None:
            continue
        run = runner(plugins.backend(backend), short)
        want = run(whole, {"batch": VALID}, found[1].inputs, found[1].variables)
        for strategy in random.Random(seed).sample(DEALT, 2):
            graph = placed(found[0], f"{strategy} * {GRID}", short)
            assert graph is not None
            result = run(graph, {"batch": VALID}, found[1].inputs, found[1].variables)
            for mine, theirs in (
                (result.outputs, want.outputs),
                (result.variables, want.variables),
            ):
                for name, x in theirs.items():
                    assert mine[name].tobytes() == x.tobytes(), f"{seed} {strategy}: {name}"
            checked += 1
    assert checked > len(seeds) // 2


def test_the_gradient_is_the_slope_of_what_the_replicas_compute() -> None:
    checked = 0
    for seed in SEEDS:
        made = recipe(seed, kinds=replicated.KINDS)
        data = data_for(made, VALID, raw=True)
        if data is None:
            continue
        graph = Resolve().run(make(made, VALID, F64, raw=True).graph)
        parts = rows(VALID, [2, 2] if seed % 2 else [3])
        run = ByParts(graph, parts)
        at = run.run(data.inputs, data.variables)[0].outputs
        rng = np.random.default_rng(seed)
        for name in at.keys() & data.variables.keys():
            checked += _is_slope(run, data, name, at[name], rng, f"seed {seed}: {name}")
    assert checked > len(SEEDS) // 3


def _is_slope(
    run: ByParts, data: Data, name: str, gradient: np.ndarray, rng: np.random.Generator, what: str
) -> bool:
    """Whether the loss is smooth along a random direction; raises where its slope is another."""
    signature = rng.choice((-1.0, 1.0), gradient.shape)
    losses = []
    for step in (-2, -1, 1, 2):
        moved = {**data.variables, name: data.variables[name] + step * SLOPE * signature}
        losses.append(float(run.run(data.inputs, moved)[0].outputs["loss"]))
    fine = (losses[2] - losses[1]) / (2 * SLOPE)
    coarse = (losses[3] - losses[0]) / (4 * SLOPE)
    want = float((gradient * signature).sum())
    scale = max(1.0, abs(want), data.largest * 1e-2)
    if abs(fine - coarse) > 1e-5 * scale:
        return False  # a kink
    assert abs(fine - want) < 1e-4 * scale, f"{what}: {want} instead of {fine}"
    return True


def test_no_pass_before_placing_loses_a_mark() -> None:
    for seed in SEEDS[::5]:
        found = drawn(seed)
        if found is None:
            continue
        made, data = found
        graph = replace(graph_of(made, VALID))
        parts = rows(VALID, [3])
        before = ByParts(graph, parts).run(data.inputs, data.variables)[0]
        after = run_passes(graph, differentiation())
        agree(ByParts(after, parts).run(data.inputs, data.variables)[0], before, data, f"{seed}")
