"""Law 1: what a model gives on a mesh is what it gives on one device."""

from __future__ import annotations

import pytest
from graphc_numpy import BACKEND as NUMPY
from laws.configs import config, every_pair
from laws.execute import runner
from laws.law import case, holds
from laws.simulate import simulate

from graphc.runtime.reference import BACKEND as REFERENCE

CASES = 500
SLICE = 10  # cases of one test
SLOW = 20_000


@pytest.mark.parametrize("start", range(0, CASES, SLICE))
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
    """By the simulator, and by one backend or the other."""
    c = case(seed)
    holds(c, simulate, runner(REFERENCE if seed % 3 == 0 else NUMPY, c.config.short))


def test_the_cases_cover_every_pair_of_settings() -> None:
    seen = {pair for seed in range(CASES) for pair in config(seed).pairs()}
    assert not every_pair() - seen


def test_few_steps_need_all_microbatches_midway() -> None:
    turns = [c for c in map(case, range(0, CASES, 5)) if c.config.turns > 1]
    barriers = [c for c in turns if c.graph is None]
    assert len(barriers) <= 0.1 * len(turns)
