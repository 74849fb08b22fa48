"""Routes: the conversions that lead from one placement to another, at the least cost.

Where several axes cut one dim, the order matters: a cut is joined minor axis first and made major
axis first, and a minor axis that stands in the way is gathered and cut again. A conversion over
space of a value that varies over time is made once per turn, so that a sum is accumulated before
it is reduced, and a value is cut over time last.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count
from math import prod

from graphc.errors import InternalError
from graphc.ops.collective import Conversion, conversion_over
from graphc.passes.place_space import LATENCY, LOCAL
from graphc.placement import Axis, Mesh, Placement, R, Replicated, Split, State
from graphc.types import TensorType

Step = tuple[Conversion, Placement]  # a conversion, and the placement after it


def route(t: TensorType, want: Placement, mesh: Mesh, tree: frozenset[str]) -> list[Step]:
    """The conversions from `t` as it is placed to the placement `want`, in order.

    tree: the axes whose sums are taken by tree_reduce. Dijkstra's search over the placements in
    which every space axis is as it was, as it is wanted, or replicated.
    """
    order = count()
    best: dict[Placement, float] = {t.placement: 0.0}
    heap: list[tuple[float, int, Placement, list[Step]]] = [(0.0, next(order), t.placement, [])]
    while heap:
        cost, _, at, path = heapq.heappop(heap)
        if at == want:
            return path
        if cost > best[at]:
            continue
        for axis, step in _steps(at, want, mesh, tree):
            after = at.with_state(mesh, axis.name, step.states[1])
            total = cost + _cost(t, at, after, axis, step, mesh)
            if total < best.get(after, float("inf")):
                best[after] = total
                heapq.heappush(heap, (total, next(order), after, [*path, (step, after)]))
    raise InternalError("G0999", f"no way from placement {t.placement} to {want}")


def _steps(
    at: Placement, want: Placement, mesh: Mesh, tree: frozenset[str]
) -> Iterator[tuple[Axis, Conversion]]:
    for axis in reversed(mesh.axes):
        for target in _targets(axis, at[axis.name], want[axis.name]):
            if not _blocked(axis, at, target, mesh):
                source = at[axis.name]
                step = conversion_over(axis.over, axis.name, source, target, axis.name in tree)
                if step is not None:
                    yield axis, step


def _targets(axis: Axis, source: State, target: State) -> list[State]:
    """Where an axis may go next. Over time there is no way back into a loop that was left."""
    if axis.over == "time" and source == target:
        return []
    return [s for s in dict.fromkeys((target, R)) if s != source]


def _blocked(axis: Axis, at: Placement, target: State, mesh: Mesh) -> bool:
    """Whether a more minor axis splits a dim that this conversion cuts or joins."""
    dims = [s.dim for s in (at[axis.name], target) if isinstance(s, Split)]
    minor = mesh.axes[mesh.axes.index(axis) + 1 :]
    return any(at[a.name] == Split(d) for a in minor for d in dims)


def _cost(
    t: TensorType, at: Placement, after: Placement, axis: Axis, step: Conversion, mesh: Mesh
) -> float:
    """Bytes moved, the latency of a collective, a little for a local conversion; per turn."""
    if axis.over == "time":
        return LOCAL
    others = [a for a in mesh.axes if a != axis]
    parts = prod(a.size for a in others if isinstance(at[a.name], Split))
    turns = prod(a.size for a in mesh.time if not isinstance(at[a.name], Replicated))
    moved = step.traffic(axis.size, t.bytes / parts)
    return turns * (moved + (LATENCY if step.communicates else LOCAL))
