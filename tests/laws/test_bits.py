"""The bits law: under a grid, a step gives the same bits however the mesh cuts it."""

from __future__ import annotations

import pytest
from laws.bits import bits_case, check_bits
from laws.execute import backend_of, runner
from laws.simulate import simulate
from shares import every

CASES = 120
SLICE = 10  # cases of one test
SLOW = 5_000


@pytest.mark.one_in(1)
@pytest.mark.parametrize("start", every(12, range(0, CASES, SLICE)))
def test_a_random_step_has_the_same_bits_however_it_is_cut(start: int) -> None:
    for seed in range(start, start + SLICE):
        _check(seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("start", range(CASES, SLOW, 200))
def test_many_random_steps_have_the_same_bits_however_they_are_cut(start: int) -> None:
    for seed in range(start, start + 200):
        _check(seed)


def _check(seed: int) -> None:
    c = bits_case(seed)
    check_bits(c, simulate)
    check_bits(c, runner(backend_of(seed), short=False))
