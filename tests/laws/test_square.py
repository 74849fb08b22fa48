"""Law: where parameters are as long as the batch, every strategy finds its way, too."""

from __future__ import annotations

import pytest
from laws.programs.judge import judge
from laws.programs.program import Leaf, Program, Statement
from laws.square import check, drawn, strategy_of
from shares import alternate

from graphc.strategies import parse_strategy

SLICE, SEEDS = 20, 60
MORE, PART = 2_000, 250


@pytest.mark.parametrize("start", range(0, SEEDS, SLICE))
def test_steps_whose_dims_are_as_long_as_the_batch_are_what_they_are_on_one_device(
    start: int,
) -> None:
    for seed in range(start, start + SLICE):
        check(seed)


@pytest.mark.one_in(1, ci=4)
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("start", alternate(range(SEEDS, MORE, PART)))
def test_two_thousand_steps_whose_dims_are_as_long_as_the_batch(start: int) -> None:
    for seed in range(start, min(start + PART, MORE)):
        check(seed)


def test_a_product_over_features_of_as_many_examples() -> None:
    """The first step that was found to have no route: one of the 3 is a feature's dim."""
    leaves = (
        Leaf("w3", "params", (8, 3), "float32", "normal"),
        Leaf("w4", "params", (1,), "float32", "normal"),
        Leaf("x0", "batch", (None, 8), "float32", "normal"),
    )
    loss = Statement("", "np.mean(w3 * ((x0 @ w3)[..., :1] @ w4))", ("w3", "w4", "x0"))
    program = Program(0, (3, 3), leaves, (), (loss,), ())
    verdict = judge(program, "zero(2, stage=3) * accumulate(2)", ("native",))
    assert not verdict.defects and not verdict.refused


def test_both_orders_of_space_and_time_are_drawn() -> None:
    axes = {parse_strategy(strategy_of(seed)).layout("a").mesh.axes[0].over for seed in range(40)}
    assert axes == {"space", "time"}
    assert all(drawn(seed).statements for seed in range(SEEDS))
