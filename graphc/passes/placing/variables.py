"""The placement of variables and their gradients: the layout's rules, resolved for a graph."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache, partial
from typing import TypeAlias

from graphc.ir.graph import Graph, Variable
from graphc.ir.placement import Axis, Home, R, Split, State, Varying
from graphc.strategies import Balanced, Longest, MeshLayout, Rule, Wish
from graphc.support.errors import GraphcError

Dealt: TypeAlias = Callable[[int], dict[str, int]]  # number of homes -> the home of each variable


def variable_states(graph: Graph, layout: MeshLayout, axis: Axis) -> dict[str, State]:
    """The state of every variable along an axis. Raises G0404 for a split that does not fit."""
    replicas = axis.over == "space" and axis.name in layout.batch and axis.name not in layout.local
    dealt = cache(partial(_homes, graph))
    return {
        v.name: Varying()
        if v.local and replicas
        else _state(v, _wish(v, graph, layout.variables, axis), graph, layout, axis, dealt)
        for v in graph.variables.values()
    }


def variables_at_home(graph: Graph, layout: MeshLayout) -> frozenset[str]:
    """The variables that not all devices hold."""
    if not any(isinstance(rule.state, Home | Balanced) for rule in layout.variables):
        return frozenset()
    along = [variable_states(graph, layout, axis) for axis in layout.mesh.axes]
    return frozenset(v for states in along for v, s in states.items() if isinstance(s, Home))


def gradient_states(graph: Graph, layout: MeshLayout, axis: Axis) -> dict[str, State]:
    """The states that rules give to gradients, by param; params without a rule are left out."""
    states = {}
    dealt = cache(partial(_homes, graph))
    for v in graph.variables.values():
        wish = _wish(v, graph, layout.gradients, axis, None)
        if v.kind == "param" and wish is not None:
            states[v.name] = _state(v, wish, graph, layout, axis, dealt)
    return states


def _wish(
    v: Variable, graph: Graph, rules: Iterable[Rule], axis: Axis, otherwise: Wish | None = R
) -> Wish | None:
    name = graph.variables.get(v.of, v).name
    outer = v.kind == "outer"  # one value for devices that make local steps; else as a slot
    kind = "slot" if outer else v.kind
    for rule in rules:
        if outer and rule.state == Varying():
            continue
        if rule.axis == axis.name and kind in rule.kinds and fnmatchcase(name, rule.glob):
            return rule.state
    return otherwise


def _state(
    v: Variable, wish: Wish | None, graph: Graph, layout: MeshLayout, axis: Axis, dealt: Dealt
) -> State:
    match wish:
        case Split(dim=dim):
            return _cut(v, dim, graph, axis)
        case Longest():
            return _longest(v, axis, _taken(v, graph, layout, axis))
        case Balanced(homes=homes):
            return Home(dealt(homes)[graph.variables.get(v.of, v).name])
        case None:
            return R
        case _:
            return wish


def _cut(v: Variable, given: int, graph: Graph, axis: Axis) -> State:
    """The split along the dim of a rule; a slot is split as its param, if it has its shape."""
    owner = graph.variables.get(v.of, v)
    shape = owner.type.shape
    dim = given + len(shape) if given < 0 else given
    if not 0 <= dim < len(shape) or shape[dim] < axis.size:
        raise GraphcError(
            "G0404",
            f"variable '{owner.name}' of shape {shape} can't be split along dim {given} "
            f"into {axis.size} shards",
            span=owner.origin,
        )
    return Split(dim) if v.type.shape == shape else R


def _longest(v: Variable, axis: Axis, taken: set[int]) -> State:
    shape, n = v.type.shape, axis.size
    dims = [d for d in range(v.type.rank) if d not in taken and shape[d] >= n]
    # A shard of a dim that does not divide is padded: every device keeps the ceiling.
    longest = max(dims, key=lambda d: (shape[d] % n == 0, shape[d]), default=None)
    return R if longest is None else Split(longest)


def _taken(v: Variable, graph: Graph, layout: MeshLayout, axis: Axis) -> set[int]:
    """The dims that rules split along other axes: a dim that two axes split is costly to gather."""
    taken: set[int] = set()
    for other in layout.mesh.axes:
        wish = _wish(v, graph, layout.variables, other)
        if other != axis and isinstance(wish, Split):
            state = _cut(v, wish.dim, graph, other)
            taken |= {state.dim} if isinstance(state, Split) else set()
    return taken


def _homes(graph: Graph, homes: int) -> dict[str, int]:
    """The owner of every variable but slots: the largest first, to the one with fewest bytes."""
    sizes: dict[str, int] = {}
    for v in graph.variables.values():
        owner = graph.variables.get(v.of, v).name
        sizes[owner] = sizes.get(owner, 0) + v.type.bytes
    return deal(sizes, homes)


def deal(sizes: Mapping[str, int], homes: int) -> dict[str, int]:
    """The owner of each: the largest first, to the device that has the fewest bytes so far."""
    held, owners = [0] * homes, {}
    for name in sorted(sizes, key=lambda n: (-sizes[n], n)):
        home = min(range(homes), key=lambda k: (held[k], k))
        held[home] += sizes[name]
        owners[name] = home
    return owners


# -- sharded storage ------------------------------------------------------------------------------


def stored_values(
    graph: Graph, layout: MeshLayout, axis: Axis, lazy: Container[str]
) -> frozenset[str]:
    """The reads of variables in sharded storage along an axis, and what depends only on them.

    Such variables are split along the axis only to be stored, and gathered for their uses. A value
    that depends only on them (a cast of a weight) is treated in the same way: it is split where
    that costs nothing, and gathered where a node that combines it with other operands prefers that.
    """
    if axis.name not in layout.stored:
        return frozenset()
    states = variable_states(graph, layout, axis)
    params = (n for v, n in graph.reads.items() if graph.variables[v].kind != "slot")
    cut = {n.name for n in params if isinstance(states[str(n.op.attributes["source_name"])], Split)}
    return made_of(graph, cut, lazy)


def made_of(graph: Graph, sources: set[str], free: Container[str]) -> frozenset[str]:
    """The sources, and every node that depends only on them and on free values."""
    derived = set(sources)
    for node in graph:
        not_free = [x for x in node.operands if x in derived or x not in free]
        if not_free and all(x in derived for x in not_free):
            derived.add(node.name)
    return frozenset(derived)
