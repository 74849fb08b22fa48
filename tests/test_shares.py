"""What the default command leaves out of long tables of cases, CI and the soaks run."""

from __future__ import annotations

import pytest
from shares import is_chosen

SOME = [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("n", SOME)
def test_one_of_every_n_cases_is_chosen(n: int) -> None:
    chosen = [is_chosen(i, n) for i in range(60 * n)]
    assert all(sum(chosen[i : i + n]) == 1 for i in range(0, len(chosen), n))


@pytest.mark.parametrize("n", SOME)
@pytest.mark.parametrize("inner", SOME)
def test_every_value_of_the_parameter_that_changes_fastest_is_chosen(n: int, inner: int) -> None:
    assert {i % inner for i in range(n**3 * inner) if is_chosen(i, n)} == {*range(inner)}
