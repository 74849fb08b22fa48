"""Routes: the conversions that lead from one placement to another, at the least cost.

Where several axes cut one dim, the order matters: a cut is joined minor axis first and made major
axis first, and a minor axis that stands in the way is gathered and cut again. A conversion over
space of a value that varies over time is made once per turn, so that a sum is accumulated before
it is reduced, and a value is cut over time last.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from itertools import count
from math import prod

from graphc.ops.collective import Conversion
from graphc.ops.conversions import conversion_over
from graphc.placement import Axis, Home, Mesh, Placement, R, Replicated, Split, State
from graphc.types import TensorType

LATENCY = 256.0  # bytes that a collective costs on top of its traffic
LOCAL = 1.0  # a conversion without traffic: only to prefer fewer nodes

NO_ORDERS: Mapping[str, str] = {}

Route = tuple[tuple[Conversion, Placement], ...]  # conversions, each with the placement after it


def route(
    t: TensorType, want: Placement, mesh: Mesh, orders: Mapping[str, str] = NO_ORDERS
) -> tuple[float, Route] | None:
    """The cost and the steps of the way from `t` as it is placed to `want`; None if there is none.

    orders: how sums along an axis are taken, where that is chosen. Dijkstra's search over the
    placements in which every axis is as it was, as it is wanted, or replicated (which is at home
    too).
    """
    order = count()
    best: dict[Placement, float] = {t.placement: 0.0}
    heap: list[tuple[float, int, Placement, Route]] = [(0.0, next(order), t.placement, ())]
    while heap:
        cost, _, at, path = heapq.heappop(heap)
        if at.serves(want):
            return cost, path
        if cost > best[at]:
            continue
        for axis, step in _steps(at, want, mesh, orders):
            after = at.with_state(mesh, axis.name, step.states[1])
            total = cost + _cost(t, at, axis, step, mesh)
            if total < best.get(after, float("inf")):
                best[after] = total
                heapq.heappush(heap, (total, next(order), after, (*path, (step, after))))
    return None


def crossing(
    mesh: Mesh, at: Placement, axis: Axis, source: State, target: State
) -> tuple[Axis, ...]:
    """The more minor axes that split a dim which a conversion along `axis` cuts or joins."""
    dims = [s.dim for s in (source, target) if isinstance(s, Split)]
    minor = mesh.axes[mesh.axes.index(axis) + 1 :]
    return tuple(a for a in minor if any(at[a.name] == Split(d) for d in dims))


def _steps(
    at: Placement, want: Placement, mesh: Mesh, orders: Mapping[str, str]
) -> Iterator[tuple[Axis, Conversion]]:
    for axis in reversed(mesh.axes):
        source = at[axis.name]
        for target in _targets(axis, source, want[axis.name]):
            if not crossing(mesh, at, axis, source, target):
                order = orders.get(axis.name, "")
                step = conversion_over(axis.over, axis.name, source, target, order)
                if step is not None:
                    yield axis, step


def _targets(axis: Axis, source: State, target: State) -> list[State]:
    """Where an axis may go next. Over time there is no way back into a loop that was left."""
    if axis.over == "time" and source == target:
        return []
    return [s for s in dict.fromkeys((target, R)) if s != source]


def _cost(t: TensorType, at: Placement, axis: Axis, step: Conversion, mesh: Mesh) -> float:
    """Bytes moved, the latency of a collective, a little for a local conversion; per turn."""
    if axis.over == "time":
        return LOCAL
    others = [a for a in mesh.axes if a != axis]
    # Where a value is at home along another axis, only that home exchanges: the mean counts.
    parts = prod(a.size for a in others if isinstance(at[a.name], Split | Home))
    turns = prod(a.size for a in mesh.time if not isinstance(at[a.name], Replicated))
    moved = step.traffic(axis.size, t.bytes / parts)
    return turns * (moved + (LATENCY if step.communicates else LOCAL))
