"""Placing along an axis over space: the choice that moves the fewest bytes between devices.

The cost of a choice is the sum, over all values and all states in which they are needed, of what
the conversion sends (ring algorithms), a latency for every collective, and 1 for every local
conversion, so that ties fall to fewer nodes. Two rules keep the axis to what the strategy meant:
a node takes a split only if an operand has it, and gives one up only if it can't keep it.

The choice is found by descent from two starting points (partial sums resolved early, and late),
moving single nodes and whole elementwise clusters; what it finds bounds an exact search of each
part of the graph, which gives up where that takes too long (graphc.passes.bound).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from graphc.dims import Signature
from graphc.passes.bound import branch_and_bound
from graphc.passes.costs import FORBIDDEN, Ask, Costs
from graphc.passes.problem import AxisProblem
from graphc.placement import Partial, Placement, R, Split, State

SWEEPS = 12


def place_over_space(problem: AxisProblem) -> tuple[dict[str, Signature], float]:
    """The signature of every node along a space axis, and the cost of the choice in bytes."""
    search = Search(problem)
    search.descend_from_starts()
    branch_and_bound(search)
    return dict(search.choice), search.total()


class Search:
    """The state of the search: one signature per node, and how often each state is asked for."""

    def __init__(self, problem: AxisProblem) -> None:
        self.problem, self.graph = problem, problem.graph
        self.ways = {
            n.name: (Signature((), problem.fixed[n.name]),) if n.op.source else problem.ways[n.name]
            for n in self.graph
        }
        self._prune()
        self.open = [n.name for n in self.graph if len(self.ways[n.name]) > 1]
        self.users = {x: sorted(set(u)) for x, u in self.graph.users.items()}
        self.costs = Costs(problem)
        self.wanted: dict[str, list[Ask]] = {}
        for x, state in problem.wanted:
            self.wanted.setdefault(x, []).append((state, Placement()))
        self.choice = {x: ways[0] for x, ways in self.ways.items()}
        self.asked: dict[str, Counter[Ask]] = {}

    # -- what is possible -----------------------------------------------------------------------

    def _prune(self) -> None:
        """Keep the signatures that the rules allow, whatever is chosen for the others."""
        possible: dict[str, set[State]] = {}
        for n in self.graph:
            ways = self.ways[n.name]
            if n.operands:
                held = [possible[x] for x in n.operands]
                ways = ways[:1] + tuple(w for w in ways[1:] if _anchored(w, held))
                self.ways[n.name] = ways = _without_giving_up(ways, held)
            possible[n.name] = {w.result for w in ways}

    # -- what it costs --------------------------------------------------------------------------

    def value_cost(self, name: str) -> float:
        """What it costs to have a value in every state that is asked for."""
        state = self.choice[name].result
        return sum(self.costs.conversion(name, state, ask) for ask in self.asked[name])

    def rule_cost(self, name: str) -> float:
        """FORBIDDEN for each rule that a node's choice breaks, given its operands' states."""
        way, operands = self.choice[name], self.graph[name].operands
        if not operands:
            return 0.0
        states = [self.choice[x].result for x in operands]
        cost = 0.0
        if any(s != R for s in way.operands) and not any(
            s != R and s == have for s, have in zip(way.operands, states, strict=True)
        ):
            cost += FORBIDDEN
        gives_up = any(
            isinstance(have, Split) and have != s
            for s, have in zip(way.operands, states, strict=True)
        )
        if gives_up and any(_keeps(w, states) for w in self.ways[name]):
            cost += FORBIDDEN
        return cost

    def total(self) -> float:
        """The cost of the whole choice."""
        return sum(self.value_cost(x) + self.rule_cost(x) for x in self.choice)

    # -- moving ---------------------------------------------------------------------------------

    def asks(self, name: str, way: Signature) -> zip[tuple[str, Ask]]:
        """What a node asks for when it runs one way: (operand, ask) pairs."""
        pairs = zip(way.operands, self.costs.when[name], strict=True)
        return zip(self.graph[name].operands, pairs, strict=True)

    def recount(self) -> None:
        """Count anew what is asked of every value."""
        self.asked = {x: Counter(self.wanted.get(x)) for x in self.choice}
        for n in self.graph:
            for x, ask in self.asks(n.name, self.choice[n.name]):
                self.asked[x][ask] += 1

    def move(self, name: str, way: Signature) -> None:
        for x, ask in self.asks(name, self.choice[name]):
            self.asked[x][ask] -= 1
            if not self.asked[x][ask]:
                del self.asked[x][ask]
        for x, ask in self.asks(name, way):
            self.asked[x][ask] += 1
        self.choice[name] = way

    def around(self, names: Iterable[str]) -> tuple[set[str], set[str]]:
        """The values, and the nodes' rules, that a move of these nodes may change the cost of."""
        values, rules = set(names), set(names)
        for x in names:
            values.update(self.graph[x].operands)
            rules.update(self.users[x])
        return values, rules

    def cost_of(self, around: tuple[set[str], set[str]]) -> float:
        values, rules = around
        return sum(map(self.value_cost, values)) + sum(map(self.rule_cost, rules))

    def improve(self, name: str) -> bool:
        """Take the best signature of one node. Whether that was a change for the better."""
        around = self.around((name,))
        start, best = self.choice[name], self.choice[name]
        least = self.cost_of(around)
        for way in self.ways[name]:
            self.move(name, way)
            cost = self.cost_of(around)
            if cost < least - 1e-9:
                least, best = cost, way
        self.move(name, best)
        return best is not start

    def improve_cluster(self, cluster: list[str]) -> bool:
        """Move a whole cluster of elementwise nodes to one state, if that is better."""
        around = self.around(cluster)
        before = {x: self.choice[x] for x in cluster}
        best, least = before, self.cost_of(around)
        for state in {w.result for x in cluster for w in self.ways[x]}:
            options = {x: _first(self.ways[x], state) for x in cluster}
            after = {x: w or before[x] for x, w in options.items()}
            for x, way in after.items():
                self.move(x, way)
            cost = self.cost_of(around)
            if cost < least - 1e-9:
                least, best = cost, after
        for x, way in best.items():
            self.move(x, way)
        return best is not before

    # -- strategies of search -------------------------------------------------------------------

    def descend_from_starts(self) -> None:
        ends = []
        for late in (False, True):
            self.start(late)
            self.descend()
            ends.append((self.total(), dict(self.choice)))
        self.choice = min(ends, key=lambda end: end[0])[1]
        self.recount()

    def start(self, late: bool) -> None:
        """Every node takes what its operands have; partial sums are resolved early or late."""
        for n in self.graph:
            states = [self.choice[x].result for x in n.operands]
            self.choice[n.name] = self._follow(n.name, states, late)
        self.recount()

    def _follow(self, name: str, states: list[State], late: bool) -> Signature:
        ways = self.ways[name]
        partial = any(isinstance(s, Partial) for s in states)
        split = any(isinstance(s, Split) for s in states)
        if not split and not (partial and late):
            return ways[0]
        for way in ways[1:]:
            if _keeps(way, states):
                return way
        return min(ways, key=lambda w: self._entry_cost(name, states, w))

    def _entry_cost(self, name: str, states: list[State], way: Signature) -> float:
        asks = zip(states, self.asks(name, way), strict=True)
        return sum(self.costs.conversion(x, have, ask) for have, (x, ask) in asks)

    def descend(self) -> None:
        """Improve nodes and clusters until nothing changes, looking again only near a change."""
        clusters = self._clusters()
        near = set(self.open)
        for _ in range(SWEEPS):
            moved = [x for x in reversed(self.open) if x in near and self.improve(x)]
            for cluster in clusters:
                if not near.isdisjoint(cluster) and self.improve_cluster(cluster):
                    moved += cluster
            if not moved:
                return
            near = self._near(moved)

    def _near(self, moved: list[str]) -> set[str]:
        """The nodes whose best choice may depend on these nodes' choices."""
        values = set(moved)
        for x in moved:
            values.update(self.graph[x].operands)
        return values.union(*(self.users[x] for x in values))

    def _clusters(self) -> list[list[str]]:
        """Connected open elementwise nodes."""
        is_open = {x for x in self.open if self.graph[x].op.elementwise}
        root: dict[str, str] = {}

        def find(x: str) -> str:
            while root[x] != x:
                root[x] = root[root[x]]
                x = root[x]
            return x

        for n in self.graph:
            if n.name in is_open:
                root[n.name] = n.name
                for x in n.operands:
                    if x in is_open:
                        root[find(x)] = find(n.name)
        groups: dict[str, list[str]] = {}
        for x in root:
            groups.setdefault(find(x), []).append(x)
        return [g for g in groups.values() if len(g) > 1]


def _anchored(way: Signature, held: list[set[State]]) -> bool:
    """Whether some operand can hold the state, other than R, that the way takes it in."""
    return any(s != R and s in states for s, states in zip(way.operands, held, strict=True))


def _without_giving_up(
    ways: tuple[Signature, ...], held: list[set[State]]
) -> tuple[Signature, ...]:
    """The ways that keep a split, where it is certain that one is there and that some way does."""
    if any(len(states) > 1 for states in held):
        return ways
    have = [next(iter(states)) for states in held]
    if not any(isinstance(s, Split) for s in have):
        return ways
    return tuple(w for w in ways if _keeps(w, have)) or ways


def _keeps(way: Signature, states: list[State]) -> bool:
    """Whether every operand that is not replicated is taken as it is."""
    return any(s != R for s in way.operands) and all(
        have in (R, s) for have, s in zip(states, way.operands, strict=True)
    )


def _first(ways: tuple[Signature, ...], state: State) -> Signature | None:
    return next((w for w in ways if w.result == state), None)
