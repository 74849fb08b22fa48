"""Law: the memory that is told before a run is what the run takes, to the byte."""

from __future__ import annotations

import pytest
from laws.taken import EXAMPLES, PATHS, STRATEGIES, check_taken, plan

OTHERS = [x for x in EXAMPLES if x != "digits"]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_steps_take_what_was_said_before(strategy: str, path: str) -> None:
    check_taken(plan("digits", strategy), PATHS[path])


def test_devices_that_keep_their_memory_to_themselves_take_what_was_said_before() -> None:
    check_taken(plan("digits", "mirrored(2)"), PATHS["native"], deadline=600)


@pytest.mark.one_in(4, ci=5)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("example", "strategy"),
    [(x, "mirrored(3) * accumulate(2)") for x in OTHERS]
    + [pytest.param(x, y, marks=pytest.mark.ci) for x in OTHERS for y in STRATEGIES],
)
def test_steps_of_every_example_take_what_was_said_before(
    example: str, strategy: str, path: str
) -> None:
    check_taken(plan(example, strategy), PATHS[path])
