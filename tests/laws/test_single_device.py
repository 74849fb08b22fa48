"""Law 1: what a model gives on a mesh is what it gives on one device."""

from __future__ import annotations

from dataclasses import replace

import pytest
from laws.barriers import has_barrier
from laws.configs import config, every_pair
from laws.execute import PLAIN, backend_of, runner
from laws.law import case, check, holds
from laws.simulate import simulate
from shares import every

from graphc.analysis.microbatch_loops import assigned
from graphc.compiler.pipeline import distribution, partitioning, run_passes
from graphc.strategies import parse_strategy

CASES = 520
SLICE = 10  # cases of one test
SLOW = 50_000
BARRIERS = 100  # cases that have barriers mostly
BUCKETS = 50  # cases of one test, of which those with small collectives have them joined


@pytest.mark.one_in(3)
@pytest.mark.parametrize("start", every(4, range(0, CASES, SLICE)))
def test_a_random_step_on_a_random_mesh_is_the_step_on_one_device(start: int) -> None:
    for seed in range(start, start + SLICE):
        _check(seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("start", range(CASES, SLOW, 500))
def test_many_random_steps_on_random_meshes_are_the_steps_on_one_device(start: int) -> None:
    for seed in range(start, start + 500):
        _check(seed)


def _check(seed: int) -> None:
    """By the simulator, and by one of the backends."""
    c = case(seed)
    holds(c, simulate, runner(backend_of(seed), c.config.short))


def test_the_cases_cover_every_pair_of_settings() -> None:
    seen = {pair for seed in range(CASES) for pair in config(seed).pairs()}
    assert not every_pair() - seen


def test_the_cases_with_a_barrier_have_several_loops_and_the_others_have_not() -> None:
    turns = [c for c in map(case, range(0, CASES, 13)) if c.config.turns > 1]
    several = [assigned(c.graph).loops > 1 for c in turns]
    assert several == [has_barrier(c.model.graph) for c in turns]


@pytest.mark.one_in(1)
@pytest.mark.parametrize("first", every(4, range(4)))
def test_steps_with_many_barriers_give_what_one_device_gives(first: int) -> None:
    for seed in range(first, BARRIERS, 4):
        c = case(seed, ("barrier", "pairwise"))
        c = replace(c, config=replace(c.config, turns=max(2, c.config.turns)))
        holds(c, simulate, runner(backend_of(seed), c.config.short))


@pytest.mark.parametrize(
    "seeds", [range(4), pytest.param(range(4, 100), marks=pytest.mark.ci)], ids=["few", "many"]
)
def test_steps_with_gradients_in_them_give_what_one_device_gives(seeds: range) -> None:
    for seed in seeds:
        c = case(seed, ("slope",))
        holds(c, simulate, runner(backend_of(seed), c.config.short))


@pytest.mark.parametrize("start", every(2, (0, BUCKETS)))
def test_steps_whose_small_collectives_are_joined_give_what_one_device_gives(start: int) -> None:
    joined = 0
    for c in map(case, range(start, start + BUCKETS)):
        strategy = parse_strategy(c.strategy)
        passes = [*distribution(strategy), *partitioning(strategy, c.config.short, bucket=1 << 20)]
        graph = run_passes(c.model.graph, passes)
        if any(n.because and n.because.by == "bucket" for n in graph):
            check(c, simulate, runner(PLAIN, c.config.short), graph=graph)
            joined += 1
    assert joined > BUCKETS // 10
