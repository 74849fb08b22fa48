"""Reverse-mode differentiation, graph to graph.

The rules live with the ops, so this is one walk: from the loss backwards, each node asks its op
for the contributions to its operands. Contributions to one value meet in one `aggregate` node.

A gradient carries its denominator. Dividing by a run-time count of examples (the tail of a mean
over the batch) is not done where the chain rule puts it, at the start of the backward pass, but
at its end: what flows back is a plain sum over examples, tagged with the counts that it is still
to be divided by. So sums over shards and turns stay sums, a mean of means can't arise, and the
count need not be known before the last microbatch was seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graphc.builder import Builder, Value
from graphc.errors import GraphcError
from graphc.graph import Node
from graphc.op import op_named

Denominators = tuple[str, ...]
Pending = dict[Denominators, list[Value]]


def gradients(
    f: Builder, loss: Value, wrt: Sequence[str], order: str = "add_n"
) -> dict[str, Value | None]:
    """The gradient of the scalar `loss` with respect to each node of `wrt`, as new nodes of `f`.

    None where no differentiable path leads from the node to the loss. order is how contributions
    that meet are added: 'add_n', 'tree' or 'accumulate'. Raises G0301 for a loss that is no
    float scalar.
    """
    if loss.shape != () or loss.dtype.kind != "f":
        raise GraphcError(
            "G0301",
            f"a loss must be a float scalar, not {loss.type}",
            span=loss.node.origin,
            help="take the mean or the sum over what is left",
        )
    nodes = list(f.nodes.values())
    active = _active(nodes, wrt, loss.name)
    counts = _counts(nodes)
    pending: dict[str, Pending] = {loss.name: {(): [f.ones_like(loss)]}}
    found: dict[str, Value | None] = dict.fromkeys(wrt)
    for node in reversed(nodes):
        if node.name not in active or node.name not in pending:
            continue
        with f.at(node.origin), f.scope(f"grad/{node.scope}" if node.scope else "grad"):
            total = _total(f, pending.pop(node.name), order)
            if node.name in found:
                found[node.name] = _resolve(f, *total)
            if node.operands and not node.op.not_differentiable:
                _back(f, node, total, active, counts, pending)
    return found


def _active(nodes: Sequence[Node], wrt: Iterable[str], loss: str) -> set[str]:
    """The nodes on a differentiable path from `wrt` to the loss."""
    reached = set(wrt)
    for n in nodes:
        if not n.op.not_differentiable and any(x in reached for x in n.operands):
            reached.add(n.name)
    needed = {loss}
    for n in reversed(nodes):
        if n.name in needed and n.name in reached:
            needed.update(n.operands)
    return reached & needed


def _counts(nodes: Sequence[Node]) -> set[str]:
    """The scalars that are made of run-time counts and constants only."""
    scalar = {n.name for n in nodes if n.op.lazy and not n.operands and n.tensor.shape == ()}
    counts: set[str] = set()
    for n in nodes:
        if n.op.count:
            (counts if n.op.attributes.get("extent") else scalar).add(n.name)
        elif n.operands and n.op.elementwise and n.type.shape == ():  # type: ignore[union-attr]
            made = [x in counts or x in scalar for x in n.operands]
            if all(made):
                (counts if any(x in counts for x in n.operands) else scalar).add(n.name)
    return counts


def _total(f: Builder, pending: Pending, order: str) -> tuple[Denominators, Value]:
    """The sum of all contributions, still to be divided by what comes with it."""
    sums = [(key, _add(f, values, order)) for key, values in pending.items()]
    if len(sums) == 1:
        return sums[0]
    # Contributions with different denominators can only meet divided.
    return (), _add(f, [_resolve(f, key, value) for key, value in sums], order)


def _add(f: Builder, values: list[Value], order: str) -> Value:
    if len(values) == 1:
        return values[0]
    return f.add(op_named("aggregate")(order), values)  # type: ignore[call-arg]


def _resolve(f: Builder, key: Denominators, value: Value) -> Value:
    for count in key:
        value = value / f.to_dtype(Value(f, count), value.dtype)
    return value


def _named(f: Builder, part: Value, x: Value) -> Value:
    """A contribution, its dims called as those of its value are.

    An op that needs the batch whole loses the name of that dim, and so does its gradient.
    """
    extents = x.type.extents
    if not extents or part.type.extents == extents:
        return part
    return f.broadcast(part, shape=x.shape, at=tuple(range(x.rank)), extents=extents)


def _back(
    f: Builder,
    node: Node,
    total: tuple[Denominators, Value],
    active: set[str],
    counts: set[str],
    pending: dict[str, Pending],
) -> None:
    """Hand the gradient of `node` on to its operands."""
    key, g = total
    xs = [Value(f, x) for x in node.operands]
    slot = node.op.denominator
    if slot is not None and node.operands[slot] in counts:
        parts: Sequence[Value | None] = [None if i == slot else g for i in range(len(xs))]
        key = tuple(sorted((*key, node.operands[slot])))
    else:
        parts = node.op.grad(f, g, Value(f, node.name), *xs)  # type: ignore[assignment]
    for x, part in zip(xs, parts, strict=True):
        if part is not None and x.name in active:
            pending.setdefault(x.name, {}).setdefault(key, []).append(_named(f, part, x))
