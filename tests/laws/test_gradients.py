"""The gradient of a random step is the slope of its loss."""

from __future__ import annotations

from laws.differences import check_gradient

SEEDS = range(300)


def test_the_gradient_of_a_random_step_is_the_slope_of_its_loss() -> None:
    checked = sum(check_gradient(seed) for seed in SEEDS)
    assert checked > len(SEEDS) // 2
