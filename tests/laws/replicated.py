"""Steps of random models that hold per-replica code, from its mark to a global value again."""

from __future__ import annotations

from laws.recipe import Maker, Picks, batches, features
from laws.steps import repeated, step

from graphc.ir.builder import Builder, Value
from graphc.ir.graph import Variable
from graphc.ir.types import TensorType

KINDS = ("replicated", "own_statistic", "replica_state")


@step(0)
def replicated(m: Maker, p: Picks) -> None:
    """Examples against the statistics of their own replica; then the whole batch again."""
    x = m.any(p, lambda v: batches(v) == [0])
    if x is None:
        return
    own = _inside(m, p, m.f.per_replica(x))
    m.add(m.f.join_replicas(own))
    if p.chance(2):
        m.add(m.f.join_replicas(own) * x)


def _inside(m: Maker, p: Picks, own: Value) -> Value:
    """A few nodes of per-replica code that keep the batch in front."""
    f = m.f
    for _ in range(1 + p.number(3)):
        match p.number(5):
            case 0:
                own = own - repeated(f, f.mean(own, axis=0), own, range(1, own.rank))
            case 1:
                own = f.tanh(own) * (1.0 + f.mean(own * own))
            case 2 if features(own):
                at = p.some(features(own))
                w = m.param(p, *(own.shape[d] for d in at))
                own = own * repeated(f, w, own, at)
            case 3:
                own = own * f.first_replica(f.sum(f.sin(own))) * 0.1
            case _:
                own = own + f.replica_sum(f.mean(own)) * 0.1
    return own


@step(0)
def own_statistic(m: Maker, p: Picks) -> None:
    """A statistic of each replica, and one value of them: a result, or a term of the loss."""
    x = m.any(p, lambda v: batches(v) == [0])
    if x is None:
        return
    own = _inside(m, p, m.f.per_replica(x))
    made = m.f.mean(own * own) if p.chance(2) else m.f.sum(m.f.sin(own))
    value = _back(m.f, p, made)
    (m.terms if p.chance(2) else m.stats).append(value)


def _back(f: Builder, p: Picks, own: Value) -> Value:
    match p.number(3):
        case 0:
            return f.replica_mean(own)
        case 1:
            return f.first_replica(own)
        case _:
            return f.replica_sum(own)


@step(0)
def replica_state(m: Maker, p: Picks) -> None:
    """A state that every replica writes."""
    x = m.any(p, lambda v: batches(v) == [0])
    if x is None:
        return
    now = m.f.stop_gradient(m.f.mean(m.f.per_replica(x)))
    name = f"s{len(m.f.variables)}"
    how = p.of(("sum", "mean", "only_first_replica"))
    made = Variable(name, TensorType((), m.dtype), "state", aggregation=how)
    state = m.f.declare(made)
    moved = state + now * 0.1 if how == "sum" else state * 0.9 + now * 0.1
    m.f.updates[name] = moved.name
