"""What of generated cases the default command runs; `pytest -m ci` runs the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def every(nth: int, values: Iterable[Any]) -> list[Any]:
    """Each nth of the values for the default command, the others marked for CI."""
    return [
        value if i % nth == 0 else pytest.param(value, marks=pytest.mark.ci)
        for i, value in enumerate(values)
    ]
