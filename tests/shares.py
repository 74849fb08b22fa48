"""What of generated cases the default command runs, what `pytest -m ci` does, and the soaks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def alternate(values: Iterable[Any], nth: int = 2) -> list[Any]:
    """Every second, or nth, of the values for CI, the others for the soaks (`pytest -m slow`)."""
    return [
        pytest.param(value, marks=pytest.mark.ci if i % nth == 0 else pytest.mark.slow)
        for i, value in enumerate(values)
    ]


def every(nth: int, values: Iterable[Any]) -> list[Any]:
    """Each nth of the values for the default command, the others marked for CI."""
    return [
        value if i % nth == 0 else pytest.param(value, marks=pytest.mark.ci)
        for i, value in enumerate(values)
    ]


def dealt(values: Iterable[Any], some: int, more: int) -> list[Any]:
    """The first `some` of the values for the default command, `more` for CI, the rest for the
    soaks."""
    marks = [(), pytest.mark.ci, pytest.mark.slow]
    return [
        pytest.param(value, marks=marks[(i >= some) + (i >= some + more)])
        for i, value in enumerate(values)
    ]


def is_chosen(number: int, n: int) -> bool:
    """Whether the case of that number is the one of every n that is run.

    Were it the first of every n, some parameter that changes fast could always have the same value;
    so the place among n cases is the sum of the digits, in base n, of how many n came before.
    """
    block, place = divmod(number, n)
    while block and n > 1:
        block, digit = divmod(block, n)
        place -= digit
    return place % n == 0
