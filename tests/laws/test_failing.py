"""Law 9, on random strategies, backends, optimizers and faults."""

from __future__ import annotations

import pytest
from laws.failing import case, check

FEW, MANY = 10, 2000


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", range(FEW))
def test_a_step_that_fails_leaves_no_trace(seed: int) -> None:
    check(case(seed))


def test_a_meeting_that_fails_is_not_passed_over() -> None:
    """The step before it is made: only an invalid trainer says so."""
    check(case(1824))


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, MANY, 50))
def test_many_steps_that_fail_leave_no_trace(start: int) -> None:
    for seed in range(start, start + 50):
        check(case(seed))
