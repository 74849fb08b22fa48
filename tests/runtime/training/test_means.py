"""Means of an epoch, of results that are there and of results that are waited for."""

from __future__ import annotations

import math
from typing import Any

import pytest

from graphc.runtime.training.means import Means


class Later(dict[str, Any]):
    """Results that note when they are read."""

    read = False

    def __getitem__(self, name: str) -> Any:
        self.read = True
        return super().__getitem__(name)


def test_results_that_wait_are_read_a_step_later_and_added_in_order() -> None:
    values = [0.1, 0.7, 1e16, -1e16, 0.3]
    plain, later, mixed = Means(), Means(), Means()
    every = [Later(loss=x, rows=[1, 2]) for x in values]
    for k, (x, results) in enumerate(zip(values, every, strict=True)):
        plain.add({"loss": x, "rows": [1, 2]}, 3)
        later.add(results, 3)
        mixed.add(Later(loss=x) if k % 2 else {"loss": x}, 3)
        assert [r.read for r in every] == [i < k for i in range(5)]
    assert later.result() == plain.result() == mixed.result() and every[-1].read
    assert (later.steps, later.examples) == (5, 15)
    assert later.result() == plain.result()


def test_a_step_that_has_failed_after_all_is_taken_back() -> None:
    means = Means()
    means.add({"loss": 1.0}, 2)
    means.add(Later(), 4)
    with pytest.raises(KeyError):
        means.settle()
    means.take_back()
    means.take_back()
    assert (means.steps, means.examples, means.result()) == (1, 2, {"loss": 1.0})
    assert math.isclose(sum(means.result().values()), 1.0)
