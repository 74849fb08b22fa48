"""The one comparison of numbers: a NaN or an infinity is a difference unless both sides have it."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.support.distance import distance, finite_distance, magnitude, within

NAN, INF = float("nan"), float("inf")
UNLIKE = [
    ([1, NAN], [1, 2]), ([1, 2], [1, NAN]), ([1, INF], [1, 2]), ([1, 2], [1, INF]), ([INF], [-INF]),
    ([NAN], [INF]), ([INF], [NAN]), ([NAN, 1], [1, NAN]), ([3, INF, 1], [3, 1, INF]),
]  # fmt: skip


@pytest.mark.parametrize(("found", "want"), UNLIKE)
def test_what_is_not_finite_on_one_side_only_is_infinitely_far(found: list, want: list) -> None:
    assert distance(found, want) == INF
    assert not within(found, want, 1e9)


@pytest.mark.parametrize("same", [[NAN, 1], [INF, -INF, NAN], [1, 2], []])
def test_what_is_not_finite_at_the_same_places_is_no_difference(same: list) -> None:
    assert distance(same, same) == 0 and within(same, same, 0.0)


def test_the_distance_is_the_largest_difference_of_the_finite_entries() -> None:
    assert distance([1.0, NAN, 5.0], [1.5, NAN, 3.0]) == 2
    assert finite_distance([1.0, NAN, INF], [1.5, 7.0, INF]) == 0.5
    assert magnitude([-4.0, INF, NAN, 3.0]) == 4 and magnitude([NAN]) == 0


def test_an_infinity_does_not_widen_what_is_allowed() -> None:
    assert not within([INF, 1.0], [INF, 2.0], 0.1)
    assert within([INF, 1.95], [INF, 2.0], 0.1)


def test_large_integers_that_floats_would_round_together_are_apart() -> None:
    assert distance(np.array([2**62]), np.array([2**62 + 1])) == 1


def test_shapes_are_not_broadcast() -> None:
    assert distance(np.ones((2, 1)), np.ones((2, 2))) == INF


def test_the_largest_f64_are_not_nan_apart() -> None:
    assert distance([1.7e308], [-1.7e308]) == INF
