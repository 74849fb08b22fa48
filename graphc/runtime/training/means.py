"""The means of an epoch: of each number that its steps report, weighted by examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphc.runtime.results import numbers


class Means:
    """Sums over the steps of an epoch; arrays that a step reports are left out.

    Results that are no plain dict may be waited for when they are read: they are read when the next
    step was launched, so that a backend always has one to go on with.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.examples = 0
        self._sums: dict[str, float] = {}
        self._last: tuple[Mapping[str, Any], int] | None = None  # it is not in the sums yet

    def add(self, results: Mapping[str, Any], examples: int) -> None:
        """Count one step. It costs a part of a microsecond: a small step takes two."""
        if self._last is not None:
            self.settle()
        self.steps += 1
        self.examples += examples
        if type(results) is not dict:
            self._last = results, examples
            return
        sums = self._sums
        if not sums:
            sums = self._sums = dict.fromkeys(numbers(results), 0.0)
        for name in sums:
            sums[name] += results[name] * examples

    def settle(self) -> None:
        """Read what the last step reports, if it was not read yet. Raises its error."""
        if self._last is not None:
            results, examples = self._last
            sums = self._sums = self._sums or dict.fromkeys(numbers(results), 0.0)
            for name in sums:
                sums[name] += results[name] * examples
            self._last = None

    def take_back(self) -> None:
        """Forget the last step, which has failed after all."""
        if self._last is not None:
            self.steps, self.examples = self.steps - 1, self.examples - self._last[1]
            self._last = None

    def result(self) -> dict[str, float]:
        """The means by name."""
        self.settle()
        examples = self.examples or 1
        return {name: total / examples for name, total in self._sums.items()}
