"""The pass `hierarchical`: sum within a host before sending to other hosts, each device a part.

A sum over two levels, such as the devices of a host and then the hosts, sends every value whole
over the slow link from every device. If the devices of a host first share the sum between them, so
that each has a part, they send only these parts over the slow link, and gather the results over the
fast one (Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, 2009; NCCL's and Horovod's
hierarchical all-reduce).

Every entry is added over the same devices in the same order as before: only who adds it differs.
So the bits stay, in every order of sums. Levels that are summed as balanced trees, the minor one
first, also make the balanced tree over all their devices, if the minor level has l = 2**k of them:
device i of host h is leaf h * l + i, so a host's leaves begin at a multiple of 2**k, and are the
piece (k, h * l) of `graphc.ir.leaf_tree`. The tree has every such piece as a node, and above them
it is the balanced tree over the hosts. With another l, a host's leaves are no node of the tree.

A sum over leaves, which is the same tree on any devices, is one conversion through all levels, and
stays as it is: what a host has of it is a forest, which no value of the graph holds. There, each
process first makes the additions of its own (graphc.runtime.transports.local_first).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from graphc.ir.graph import Because, Graph, Node
from graphc.ir.placement import LINKS, Partial, R, Split, local_shape
from graphc.ir.rewriter import Rewriter
from graphc.ir.types import TensorType
from graphc.ops.collective import Conversion
from graphc.ops.conversion_table import conversion_over
from graphc.passes.base import Pass, register_pass
from graphc.passes.placing.links import price
from graphc.passes.placing.route import LATENCY


@register_pass
class Hierarchical(Pass):
    """Let each device send a part over a slow link, of a sum that also goes over faster ones.

    before:  %a = all_reduce %g {axis="local"} ; %b = all_reduce %a {axis="host"}
    after:   %a = reduce_scatter %g {axis="local", dim=0} ; %b.part = all_reduce %a {axis="host"}
             %b = all_gather %b.part {axis="local", dim=0}
    """

    optional = True

    def run(self, graph: Graph) -> Graph:
        if len({a.link for a in graph.mesh.space}) < 2:
            return graph
        found = list(_chains(graph))
        chains = {c[0].name: plan for c in found if (plan := _in_parts(graph, c)) is not None}
        if not chains:
            return graph
        last = {plan.chain[-1].name: plan for plan in chains.values()}
        between = {n.name for plan in chains.values() for n in plan.chain}
        work = Rewriter(graph)
        for node in graph:
            if node.name in last:
                _write(work, last[node.name])
            elif node.name not in between:
                work.put(work.moved(node))
        return work.finish()


@dataclass(frozen=True)
class _Plan:
    """How a chain of sums is done in parts. dims: the dim that each fast axis scatters."""

    chain: tuple[Node, ...]
    dims: dict[str, int]


def _chains(graph: Graph) -> Iterator[tuple[Node, ...]]:
    """Sums over one axis after the other, each with the next one as its only user."""
    ends, later = {*graph.outputs.values(), *graph.updates.values()}, set[str]()
    for node in graph:
        if not _is_sum(node) or node.name in later:
            continue
        chain = [node]
        while chain[-1].name not in ends:
            users = dict.fromkeys(graph.users[chain[-1].name])
            if len(users) != 1 or not _is_sum(following := graph[next(iter(users))]):
                break
            chain.append(following)
            later.add(following.name)
        if len(chain) > 1:
            yield tuple(chain)


def _is_sum(node: Node) -> bool:
    op = node.op
    if not isinstance(op, Conversion) or op.over != "space" or len(op.axes) != 1:
        return False
    return isinstance(op.states[0], Partial) and op.states[1] == R


def _in_parts(graph: Graph, chain: tuple[Node, ...]) -> _Plan | None:
    """How to do a chain in parts; None if it is not cheaper."""
    mesh, t = graph.mesh, graph[chain[0].operands[0]].tensor
    slowest = LINKS.index(mesh.link(_axis(n) for n in chain))
    dims: dict[str, int] = {}
    for node in chain:
        axis = _axis(node)
        fast = LINKS.index(mesh.axis(axis).link) < slowest
        if fast and (dim := _dim(graph, t, axis)) is not None:
            dims[axis] = dim
            t = t.placed(t.placement.with_state(mesh, axis, Split(dim)))
    plan = _Plan(chain, dims)
    in_order = [_axis(n) for n in chain[: len(dims)]] == list(dims)  # else the bits would change
    if not dims or not in_order or _cost(graph, list(_steps(graph, plan))) >= _cost(graph, chain):
        return None
    return plan


def _axis(node: Node) -> str:
    assert isinstance(node.op, Conversion)
    return node.op.axis


def _dim(graph: Graph, t: TensorType, axis: str) -> int | None:
    """The dim of which parts differ least in length, the first such; None if none can be cut.

    A dim that another axis splits is left alone: parts of parts would have to be joined in order.
    """
    mesh, splits = graph.mesh, [s.dim for _, s in t.placement if isinstance(s, Split)]
    n = mesh.axis(axis).size

    def padded(dim: int) -> float:
        cut = t.placed(t.placement.with_state(mesh, axis, Split(dim)))
        return prod(local_shape(cut, mesh)) * n

    dims = [d for d in range(t.rank) if d not in splits and not t.extent(d) and t.shape[d] >= n]
    return min(dims, key=padded, default=None)


def _steps(graph: Graph, plan: _Plan) -> Iterator[Node]:
    """The conversions in parts, without their operands: names are those of the chain."""
    mesh = graph.mesh
    t = graph[plan.chain[0].operands[0]].tensor
    parts = [n for n in plan.chain if _axis(n) in plan.dims]
    for node in (*parts, *(n for n in plan.chain if n not in parts)):
        op, axis = node.op, _axis(node)
        assert isinstance(op, Conversion)
        state = Split(plan.dims[axis]) if axis in plan.dims else R
        step = conversion_over("space", axis, op.states[0], state, op.order)
        assert step is not None, f"{op} can't be scattered"
        t = t.placed(t.placement.with_state(mesh, axis, state))
        yield replace(node, op=step, type=t)
    for node in reversed(parts):
        axis = _axis(node)
        step = conversion_over("space", axis, Split(plan.dims[axis]), R)
        assert step is not None
        t = t.placed(t.placement.with_state(mesh, axis, R))
        yield replace(node, op=step, type=t)


def _cost(graph: Graph, steps: Sequence[Node]) -> float:
    """Bytes sent and latencies, each times the price of its link."""
    mesh, total = graph.mesh, 0.0
    t = graph[steps[0].operands[0]].tensor
    for node in steps:
        op = node.op
        assert isinstance(op, Conversion)
        size = prod(shape := local_shape(t, mesh)) * t.dtype.bytes
        total += price(mesh, op.axes) * (op.sent(size, shape, mesh) + LATENCY)
        t = node.tensor
    return total


def _write(work: Rewriter, plan: _Plan) -> None:
    """Add the conversions; the last one has the name of the sum."""
    first, last = plan.chain[0], plan.chain[-1]
    (x,) = work.moved(first).operands
    *steps, end = _steps(work.graph, plan)
    over = "+".join(_axis(n) for n in plan.chain if _axis(n) not in plan.dims)
    link = work.graph.mesh.link(over.split("+"))
    for step in (*steps, end):
        assert isinstance(step.op, Conversion)
        before, after = step.op.states
        rule = f"{step.op.axis}: {before} -> {after}"
        reason = f"only parts are sent along {over}, over {link}"
        why = (last.because or Because("", "")).restated("hierarchical", rule, reason)
        if step is end:
            work.put(replace(last, op=step.op, operands=(x,), type=step.type, because=why))
        else:
            name = f"{last.name}.{step.op.name}"
            x = work.insert(step.op, (x,), last, why, name=name, type=step.type)
