"""Law: a step of any number of examples is that of the reference."""

from __future__ import annotations

import pytest
from laws.short_batches import ALL, MORE, check

FEW = (*ALL[:: len(MORE)], *MORE[::3])
WIDTHS = (5, 600)  # of an entry that is copied, and of one that is pointed to


@pytest.mark.one_in(3)
@pytest.mark.parametrize("width, strategy", [(WIDTHS[i % 2], s) for i, s in enumerate(FEW)])
def test_a_step_of_any_number_of_examples_is_that_of_the_reference(
    strategy: str, width: int
) -> None:
    check(strategy, width)


@pytest.mark.one_in(1)
@pytest.mark.ci
@pytest.mark.parametrize("width, strategy", [(WIDTHS[i % 2], s) for i, s in enumerate(ALL)])
def test_and_so_it_is_under_every_strategy(strategy: str, width: int) -> None:
    check(strategy, width)
