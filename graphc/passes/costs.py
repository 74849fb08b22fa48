"""What conversions along a space axis cost, given how the graph lies along the other axes.

A conversion's cost is the bytes that a device sends for it (ring algorithms), and a latency, once
per turn where both the value and its user are in the loop. A value that leaves the loop is first
made whole over time, and then converted once.
"""

from __future__ import annotations

from typing import TypeAlias

from graphc.ops.collective import conversion_over
from graphc.passes.problem import AxisProblem
from graphc.passes.route import LATENCY, LOCAL, route
from graphc.placement import Placement, R, Split, State, place

FORBIDDEN = 1e15

Ask: TypeAlias = tuple[State, Placement]  # what a user needs: along the axis, and over time


class Costs:
    """The costs of one axis's conversions.

    when: per node, the placement over time in which it needs each operand
    """

    def __init__(self, problem: AxisProblem) -> None:
        self.problem, self.graph, self.mesh = problem, problem.graph, problem.placed.mesh
        self.when = {n.name: self._when(n.name, len(n.operands)) for n in self.graph}
        self._costs: dict[tuple[str, State, Ask], float] = {}

    def _when(self, name: str, operands: int) -> tuple[Placement, ...]:
        ways = self.problem.placed.ways
        return tuple(
            place(self.mesh, ((a.name, ways[a.name][name].operands[i]) for a in self.mesh.time))
            for i in range(operands)
        )

    def conversion(self, name: str, source: State, ask: Ask) -> float:
        """The cost of having a value, which lies as `source`, as a user asks for it."""
        key = (name, source, ask)
        if key not in self._costs:
            self._costs[key] = self._conversion(*key)
        return self._costs[key]

    def _conversion(self, name: str, source: State, ask: Ask) -> float:
        target, when = ask
        if source == target:
            return 0.0
        if name in self.problem.placed.lazy and source == R and isinstance(target, Split):
            return 0.0  # made anew where it is needed
        axis = self.problem.axis
        op = conversion_over(axis.over, axis.name, source, target, tree=False)
        if op is None:
            return FORBIDDEN
        at = self.problem.placed.placement(name).with_state(self.mesh, axis.name, R)
        if any(s == state for s in (source, target) for _, state in at):
            return self._detour(name, at, when, source, target)
        if not op.communicates:
            return LOCAL
        size, turns = float(self.graph[name].type.bytes), 1
        for other, state in self._inside(at, when):
            places = self.mesh.axis(other)
            size /= places.size if isinstance(state, Split) else 1
            turns *= places.size if places.over == "time" else 1
        return turns * (op.traffic(axis.size, size) + LATENCY)

    def _inside(self, at: Placement, when: Placement) -> Placement:
        """How a value lies along the other axes at the time of its conversion."""
        for axis in self.mesh.time:
            if when[axis.name] != at[axis.name]:  # it leaves the loop before, or enters it after
                at = at.with_state(self.mesh, axis.name, R)
        return at

    def _detour(
        self, name: str, at: Placement, when: Placement, source: State, target: State
    ) -> float:
        """The cost of a conversion of a dim that several axes cut."""
        axis = self.problem.axis.name
        want = at.with_state(self.mesh, axis, target)
        for a in self.mesh.time:
            want = want.with_state(self.mesh, a.name, when[a.name])
        t = self.graph[name].tensor.placed(at.with_state(self.mesh, axis, source))
        way = route(t, want, self.mesh)
        return FORBIDDEN if way is None else way[0]
