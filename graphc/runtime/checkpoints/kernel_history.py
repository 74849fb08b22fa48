"""The kernel history of a run: with which kernels and which grid its steps were computed.

Bit-identical results are guaranteed for one set of kernels and one grid. A checkpoint keeps the
history, so that a run that resumes elsewhere can report from which step on its bits may differ.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, TypeAlias

from graphc.support.dataclass import dataclass
from graphc.support.errors import GraphcError
from graphc.support.warn import warn


@dataclass(frozen=True)
class KernelHistoryPart:
    """The steps after the first `start` ones, up to the next part.

    grid:    the factor that fixes the sums, such as reproducible(8); '' without one
    kernels: their fingerprint (graphc.runtime.checkpoints.fingerprint); empty if it is unknown
    """

    start: int
    grid: str
    kernels: dict[str, str]

    def is_like(self, other: KernelHistoryPart) -> bool:
        """Whether both give the same bits."""
        return (self.grid, self.kernels) == (other.grid, other.kernels)


KernelHistory: TypeAlias = tuple[KernelHistoryPart, ...]


def gone_on(history: KernelHistory, now: KernelHistoryPart) -> KernelHistory:
    """The history of a run that continues, after `now.start` steps, with the setting in `now`."""
    before = tuple(part for part in history if part.start < now.start)
    return before if before and before[-1].is_like(now) else (*before, now)


def changes(history: KernelHistory) -> tuple[str, ...]:
    """Where the guarantee of the same bits ends: `after step 6: core Haswell became SkylakeX`."""
    pairs = pairwise(history)
    return tuple(f"after step {b.start}: {x}" for a, b in pairs for x in _between(a, b))


def _between(a: KernelHistoryPart, b: KernelHistoryPart) -> Iterator[str]:
    if not a.kernels:
        yield "before it the kernels are unknown"
    else:
        yield from _of_grid(a, b)
        yield from _of_kernels(a, b)


def _of_grid(a: KernelHistoryPart, b: KernelHistoryPart) -> Iterator[str]:
    if a.grid != b.grid:
        yield f"{a.grid or 'no grid'} became {b.grid or 'no grid'}"


def _of_kernels(a: KernelHistoryPart, b: KernelHistoryPart) -> Iterator[str]:
    for name in a.kernels | b.kernels:
        before, after = a.kernels.get(name, "none"), b.kernels.get(name, "none")
        if before != after:
            yield f"{name} {before} became {after}"


# -- in a checkpoint -------------------------------------------------------------------------------


def in_json(history: KernelHistory) -> str:
    """The history as one line, for the notes of a checkpoint."""
    return json.dumps([[p.start, p.grid, p.kernels] for p in history])


def of_json(text: str) -> KernelHistory:
    """Parse the output of `in_json`. Raises G0509 for anything else; '' is an unknown part."""
    if not text:
        return (KernelHistoryPart(0, "", {}),)
    try:
        parts = tuple(_part(entry) for entry in json.loads(text))
    except (ValueError, TypeError, RecursionError):
        parts = ()
    if not parts or any(a.start >= b.start for a, b in pairwise(parts)):
        raise GraphcError("G0509", "the checkpoint's history of kernels is not well-formed")
    return parts


def _part(entry: Any) -> KernelHistoryPart:
    start, grid, kernels = entry
    if not (isinstance(start, int) and isinstance(grid, str) and isinstance(kernels, dict)):
        raise TypeError
    if not all(isinstance(x, str) for pair in kernels.items() for x in pair):
        raise TypeError
    return KernelHistoryPart(start, grid, kernels)


# -- on resume -------------------------------------------------------------------------------------


def warn_of_change(path: object, before: KernelHistoryPart, now: KernelHistoryPart) -> None:
    """Warn of what has changed since a checkpoint, if `now` requires the same bits."""
    if not now.grid or now.start == 0 or before.is_like(now):
        return
    later = (
        f"the run continues; after step {now.start} its bits may differ from an uninterrupted run"
    )
    if not before.kernels:
        text = f"{path} does not say which kernels computed its {now.start} steps"
        warn(
            GraphcError("G0528", text, help="the run continues; its own checkpoints will say so"),
            "note",
        )
        return
    for text in _of_grid(before, now):
        warn(GraphcError("G0529", f"{text} since {path} was written", help=later))
    if kernels := ", ".join(_of_kernels(before, now)):
        text = f"the kernels differ from those that computed {path}: {kernels}"
        warn(GraphcError("G0527", text, help=later))
