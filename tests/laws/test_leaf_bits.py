"""Law: the same bits on any number of devices."""

from __future__ import annotations

import pytest
from laws import cut_rows
from laws.leaf_bits import case, check
from shares import every

CASES = 60
SLICE = 10
SLOW = 2_000
FOUND = (5156,)  # that a soak has found: a sum over a batch whose length was lost and came back


@pytest.mark.one_in(1)
@pytest.mark.parametrize("start", every(6, range(0, CASES, SLICE)))
def test_a_random_step_has_the_same_bits_on_any_number_of_devices(start: int) -> None:
    for seed in range(start, start + SLICE):
        check(case(seed))


@pytest.mark.parametrize("seed", FOUND)
def test_a_step_that_once_failed_has_the_same_bits(seed: int) -> None:
    check(case(seed))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("start", range(CASES, SLOW, 100))
def test_many_random_steps_have_the_same_bits(start: int) -> None:
    for seed in range(start, start + 100):
        check(case(seed))


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_a_table_that_is_cut_has_the_bits_of_the_whole_one(seed: int, native: bool) -> None:
    cut_rows.check(seed, native)


@pytest.mark.slow
def test_many_tables_that_are_cut_have_the_bits_of_the_whole_one() -> None:
    for seed in range(200):
        cut_rows.check(seed, seed % 4 > 1)
