"""Totals: results over several batches, with every example counted once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphc.lowering.program.program import Program
from graphc.support.errors import GraphcError

Array = NDArray[Any]


class Totals:
    """Sums of results over batches."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}
        self.examples = 0

    def add(self, outputs: Mapping[str, Array], examples: int) -> None:
        self.examples += examples
        for name, value in outputs.items():
            if np.ndim(value) == 0:
                weight = 1 if "/" in name else examples
                self.sums[name] = self.sums.get(name, 0.0) + float(value) * weight

    def result(self) -> dict[str, float]:
        if not self.examples:
            raise GraphcError("G0606", "there is no example to evaluate on")
        means = {k: v / self.examples for k, v in self.sums.items() if "/" not in k}
        for name in means:
            if self.sums.get(f"{name}/den"):
                means[name] = self.sums[f"{name}/num"] / self.sums[f"{name}/den"]
        return means


def counted(program: Program) -> str:
    """An input whose first dim is the batch; '' where no input has one."""
    return next((name for name, t in program.inputs.items() if t.extent(0)), "")
