"""What the default command leaves out of long tables of cases, CI and the soaks run."""

from __future__ import annotations

from collections import Counter

import pytest
from shares import share_of


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_the_default_command_runs_each_nth_case_and_ci_as_many_as_the_soaks(n: int) -> None:
    count = Counter(share_of(i, n) for i in range(60 * n))
    assert count[""] == 60
    assert abs(count["ci"] - count["slow"]) <= 60


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("inner", [2, 3, 4, 5, 6])
def test_every_value_of_the_parameter_that_changes_fastest_is_run(n: int, inner: int) -> None:
    run = {i % inner for i in range(n**3 * inner) if not share_of(i, n)}
    assert run == set(range(inner))
