"""The means of an epoch: of each number that its steps report, weighted by examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphc.runtime.results import numbers


class Means:
    """Sums over the steps of an epoch; arrays that a step reports are left out."""

    def __init__(self) -> None:
        self.steps = 0
        self.examples = 0
        self._sums: dict[str, float] = {}

    def add(self, results: Mapping[str, Any], examples: int) -> None:
        """Count one step. It costs a part of a microsecond: a small step takes two."""
        if not self.steps:
            self._sums = dict.fromkeys(numbers(results), 0.0)
        self.steps += 1
        self.examples += examples
        sums = self._sums
        for name in sums:
            sums[name] += results[name] * examples

    def result(self) -> dict[str, float]:
        """The means by name."""
        examples = self.examples or 1
        return {name: total / examples for name, total in self._sums.items()}
