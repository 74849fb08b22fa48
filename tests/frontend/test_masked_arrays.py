"""Masked arrays: what they hide is never read as if it were there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.support.errors import GraphcError

ONES = np.ones((2, 4), np.float32)
HIDING = np.ma.masked_array(ONES, ONES > 0)
SGD = graphc.optim.sgd(0.1)


def loss(params: Any, batch: Any) -> Any:
    return np.mean(batch["x"] * params["w"])


@pytest.fixture
def trainer() -> graphc.StepTrainer:
    made = graphc.compile(loss, {"w": ONES[0]}, {"x": ONES}, optimizer=SGD)
    made.step({"x": ONES})
    return made


@pytest.mark.parametrize(
    ("use", "code"),
    [
        (lambda t: t.step({"x": HIDING}), "G0806"),
        (lambda t: t.evaluate([{"x": HIDING}]), "G0806"),
        (lambda t: t.fit(graphc.data.arrays({"x": HIDING}).batches(2)), "G0614"),
        (lambda t: setattr(t, "params", {"w": HIDING[0]}), "G0614"),
        (lambda _: graphc.compile(loss, {"w": ONES[0]}, {"x": HIDING}, optimizer=SGD), "G0806"),
        (lambda _: graphc.compile(loss, {"w": HIDING[0]}, {"x": ONES}, optimizer=SGD), "G0806"),
        (
            lambda _: graphc.compile(
                lambda p, b: np.mean(b["x"] * p["w"] * HIDING), {"w": ONES[0]}, {"x": ONES}
            ),
            "G0810",
        ),
    ],
)
def test_an_array_that_hides_entries_is_an_error(
    trainer: graphc.StepTrainer, use: Callable[[graphc.StepTrainer], Any], code: str
) -> None:
    with pytest.raises(GraphcError, match="masked array that hides entries") as caught:
        use(trainer)
    assert caught.value.code == code and "x.filled(0)" in str(caught.value.help)


def test_an_array_that_hides_nothing_is_an_array(trainer: graphc.StepTrainer) -> None:
    plain = trainer.evaluate([{"x": ONES}])
    assert trainer.evaluate([{"x": np.ma.masked_array(ONES)}]) == plain
