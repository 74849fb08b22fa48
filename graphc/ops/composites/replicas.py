"""The words of per-replica code: into it, and back to one global value."""

from __future__ import annotations

import warnings

from graphc.builder import Builder, Operand, Value
from graphc.errors import GraphcError, GraphcWarning
from graphc.op import op_named, require
from graphc.ops.registry import composite
from graphc.ops.replicas import JoinReplicas, OwnSize, PerReplica, ReplicaIndex, ReplicaSum
from graphc.types import BOOL, F32, I32, DType

_WORDS = "without it the value is global already: mean(x) is the mean over the whole batch"


@composite
def per_replica(f: Builder, x: Operand) -> Value:
    """`y` is each replica's own part of x: what follows is computed by every replica for itself

    A sum or mean over the batch is then over the replica's own examples. A replica is one device's
    part of the batch, with accumulate one microbatch of it. On one device there is one replica.
    replica_sum, replica_mean, first_replica and join_replicas lead back to a global value.
    """
    value = f.lift(x)
    return value if f.is_varying(value) else f.add(PerReplica(), (value,))


@composite
def replica_sum(f: Builder, x: Operand) -> Value:
    """`y` is the sum of what the replicas have; one without examples has what sums of none give

    Of a mean over the replicas' own examples it grows with their number (a warning says so).
    """
    value = _taken(f, "replica_sum", x)
    if f.training and _holds_mean(f, value):
        _warn(f, "per-replica sum of means", "it grows with the number of replicas")
    if value.dtype.kind in "bu":
        value = f.to_dtype(value, I32)
    return f.add(ReplicaSum(), (value,))


@composite
def replica_mean(f: Builder, x: Operand) -> Value:
    """`y = replica_sum(x) / replica_count()`: each replica counts alike, however few its examples

    Of a mean over the replicas' own examples this is a mean of means (a warning says so): not the
    mean over the batch where the parts are of different lengths.
    """
    value = _taken(f, "replica_mean", x)
    text = f"replica_mean takes floats, not {value.dtype}"
    require(value.dtype.kind == "f", text, code="G0202", help="cast it, or take replica_sum")
    if f.training and _holds_mean(f, value):
        few = "a replica with few examples counts as much as one with many"
        _warn(f, "per-replica mean of means", few)
    return f.add(ReplicaSum(), (value,)) / f.replica_count(dtype=value.dtype)


@composite
def first_replica(f: Builder, x: Operand) -> Value:
    """`y` is what the first replica has, everywhere"""
    value = _taken(f, "first_replica", x)
    if value.dtype == BOOL:
        return f.ne(f.first_replica(f.to_dtype(value, I32)), 0)
    mine = f.eq(f.add(ReplicaIndex()), 0)
    chosen = f.select(f.broadcast_to(mine, value.shape), value, f.zeros_like(value))
    return f.add(ReplicaSum(), (chosen,))


@composite
def join_replicas(f: Builder, x: Operand) -> Value:
    """`y` is the batch of all replicas: each example's entry as its own replica computed it"""
    value = f.lift(x)
    if not f.is_varying(value):
        raise _global_already("join_replicas", value)
    text = f"join_replicas puts a batch together, and {value.type} has no dim of it"
    require(bool(value.type.extents), text, code="G0483", help=_BACK)
    return f.add(JoinReplicas(), (value,))


@composite
def replica_count(f: Builder, dtype: DType = F32) -> Value:
    """`y` is the number of replicas: devices that share the batch, times its microbatches"""
    return f.add(op_named("replica_count")(dtype=dtype))  # type: ignore[call-arg]


_BACK = "replica_sum(v), replica_mean(v) or first_replica(v) make one value of all"


def _taken(f: Builder, word: str, x: Operand) -> Value:
    """The operand of a word that leads back. Raises G0483 unless it can."""
    value = f.lift(x)
    if not f.is_varying(value):
        raise _global_already(word, value)
    help = "reduce it over the batch first, or put the batch together with join_replicas(v)"
    text = f"{word}: replicas have different numbers of examples, and {value.type} has one for each"
    require(not value.type.extents, text, code="G0483", help=help)
    return value


def _global_already(word: str, value: Value) -> GraphcError:
    message = f"{word} takes what each replica has of its own; this is one value for all"
    labels = ((value.node.origin, "global"),) if value.node.origin else ()
    help = f"mark it with per_replica(x); {_WORDS}"
    return GraphcError("G0483", message, labels=labels, help=help)


def _holds_mean(f: Builder, value: Value) -> bool:
    """Whether a value is made, entry by entry, of a quotient by the replica's own count."""
    stack, seen = [value.name], set[str]()
    while stack:
        node = f.nodes[stack.pop()]
        below = node.op.denominator
        if below is not None and _is_own_count(f, node.operands[below]):
            return True
        weighted = sum(f.is_varying(Value(f, x)) for x in node.operands) > 1
        if (node.op.elementwise or node.op.view) and not (weighted and node.op.linear):
            stack += [x for x in node.operands if x not in seen]
            seen.update(node.operands)
    return False


def _is_own_count(f: Builder, name: str) -> bool:
    stack = [name]
    while stack:
        node = f.nodes[stack.pop()]
        if isinstance(node.op, OwnSize):
            return True
        if node.op.elementwise or node.op.lazy:
            stack += node.operands
    return False


def _warn(f: Builder, what: str, help: str) -> None:
    note = GraphcError("G0484", f"{what}; the global mean is mean(x)", span=f.origin, help=help)
    warning = GraphcWarning(note.render().replace("error", "warning", 1))
    warnings.warn(warning, stacklevel=2)
