"""Machine code reads and writes variables in place; see laws.in_place."""

from __future__ import annotations

import pytest
from laws.in_place import STEPS, STRATEGIES, Step, check


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "strategy",
    [pytest.param(s, marks=[pytest.mark.ci] * (i % 2)) for i, s in enumerate(STRATEGIES)],
)
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_variables_hold_what_the_interpreter_says(step: Step, strategy: str) -> None:
    check(step, strategy)
