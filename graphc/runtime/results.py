"""What a step reports: by name, as Python floats and arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphc.ir.aggregation import DIFFER
from graphc.support.errors import GraphcError

Array: TypeAlias = NDArray[Any]
Metrics: TypeAlias = dict[str, Any]


def loss_of(results: Mapping[str, Any]) -> float | None:
    """The number that a step reports as its loss; None if it reports none, or an array."""
    loss = results.get("loss")
    return float(loss) if isinstance(loss, int | float) else None


def numbers(results: Mapping[str, Any]) -> dict[str, float]:
    """The results that are numbers, the loss first."""
    names = sorted(results, key=lambda name: name != "loss")
    return {n: float(results[n]) for n in names if isinstance(results[n], int | float)}


def agreed(results: Metrics) -> Metrics:
    """The results without the replica checks. Raises G0536 if a replica has another value."""
    for name, count in results.items():
        if name.startswith(DIFFER) and count:
            raise GraphcError(
                "G0536",
                f"{count} replicas would write another value to '{name.removeprefix(DIFFER)}' than "
                "the first one, whose value is used",
                help='declare another aggregation, or make them agree: "only_first_replica" drops '
                "the values of the others",
            )
    return {n: x for n, x in results.items() if not n.startswith(DIFFER)}


def plains(results: Mapping[str, Array]) -> Metrics:
    return {name: a.item() if np.ndim(a) == 0 else a for name, a in results.items()}
