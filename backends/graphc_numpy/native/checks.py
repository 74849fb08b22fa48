"""Errors that kernels note while they run: an index out of range."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from graphc.errors import GraphcError
from graphc.kernels.code import Call, Check, Kernel, Links, statements
from graphc.kernels.lowered import Lowered, Native
from graphc.ops.indexing import checked
from graphc_numpy.native.threads import new_words


def checks_of(kernel: Kernel) -> Iterator[Check]:
    """The checks in a kernel's code."""
    if isinstance(kernel, Links):
        yield Check(0, 0, kernel.limit, kernel.number)
    for statement in statements(kernel):
        if isinstance(statement, Check):
            yield statement


def limits_of(lowered: Lowered) -> dict[int, int]:
    """What is to be below what, by the number of the check."""
    lines = (x for part in lowered.parts for x in part if isinstance(x, Native))
    calls: Iterable[Call] = (c for line in lines for c in line.calls)
    return {x.number: x.limit for c in calls for x in checks_of(c.kernel)}


class Noted:
    """What the checks of a step have noted: for each, whether one failed, and a wrong value."""

    def __init__(self, lowered: Lowered, limits: Mapping[int, int]) -> None:
        self.words = new_words(2 * len(lowered.checks) + 2)
        self._kernels, self._limits = lowered.checks, limits

    def forget(self) -> None:
        """Forget what was noted: another device's error may have ended the step."""
        self.words[:] = 0

    def check(self) -> None:
        """Raise the first error that was noted, at the line it comes from, and forget them all."""
        if not self.words.any():
            return
        number = next(k for k in range(len(self._kernels)) if self.words[2 * k])
        value = self.words[2 * number + 1 : 2 * number + 2].copy()
        self.words[:] = 0
        kernel = self._kernels[number]
        try:
            checked(value, self._limits[number], kernel.op.name)
        except GraphcError as error:
            raise error.at(kernel.origin) from None
