"""The table of conversions: which op converts one state into another, over space or over time."""

from __future__ import annotations

from collections.abc import Callable

from graphc.ir.orders import Order
from graphc.ir.placement import Home, Partial, R, Split, State
from graphc.ops.collective import (
    Accumulate,
    AllGather,
    AllReduce,
    AllToAll,
    ChainReduce,
    Conversion,
    Microbatch,
    Pull,
    Reduce,
    ReduceScatter,
    Stack,
    TensorSplit,
    ToPartial,
    TreeReduce,
)


def conversion_over(
    over: str, axis: str, source: State, target: State, order: Order | None = None
) -> Conversion | None:
    """The op that converts `source` into `target` along `axis`, or None if there is none.

    order: how a partial value is added up; None: over space the transport chooses, over time it is
    a running sum.
    """
    make = _TABLE.get((over, type(source), type(target)))
    return make(axis, source, target, order) if make and source != target else None


_Make = Callable[[str, State, State, Order | None], Conversion | None]


def _all_reduce(axis: str, source: State, target: State, order: Order | None) -> Conversion:
    assert isinstance(source, Partial)
    fixed = {Order.TREE: TreeReduce, Order.ACCUMULATE: ChainReduce}
    return fixed.get(order or Order.ADD_N, AllReduce)(axis, source.op)


def _reduce_scatter(axis: str, source: State, target: State, order: Order | None) -> Conversion:
    assert isinstance(source, Partial) and isinstance(target, Split)
    return ReduceScatter(axis, target.dim, source.op, order or Order.ADD_N)


def _all_to_all(axis: str, source: State, target: State, order: Order | None) -> Conversion:
    assert isinstance(source, Split) and isinstance(target, Split)
    return AllToAll(axis, source.dim, target.dim)


def _reduce(axis: str, source: State, target: State, order: Order | None) -> Conversion:
    assert isinstance(source, Partial) and isinstance(target, Home)
    return Reduce(axis, target.coordinate, source.op, order or Order.ADD_N)


def _pull(axis: str, source: State, target: State, order: Order | None) -> Conversion:
    assert isinstance(source, Home)
    return Pull(axis, source.coordinate)


def _accumulate(axis: str, source: State, target: State, order: Order | None) -> Conversion:
    assert isinstance(source, Partial)
    return Accumulate(axis, source.op, order or Order.ACCUMULATE)


def _gathered(op: Callable[[str, int], Conversion]) -> _Make:
    def make(axis: str, source: State, target: State, order: Order | None) -> Conversion:
        assert isinstance(source, Split)
        return op(axis, source.dim)

    return make


def _cut(op: Callable[[str, int], Conversion]) -> _Make:
    def make(axis: str, source: State, target: State, order: Order | None) -> Conversion:
        assert isinstance(target, Split)
        return op(axis, target.dim)

    return make


def _to_partial(axis: str, source: State, target: State, order: Order | None) -> Conversion | None:
    return ToPartial(axis) if target == Partial() else None


_TABLE: dict[tuple[str, type, type], _Make] = {
    ("space", Partial, type(R)): _all_reduce,
    ("space", Partial, Split): _reduce_scatter,
    ("space", Partial, Home): _reduce,
    ("space", Home, type(R)): _pull,
    ("space", Split, type(R)): _gathered(AllGather),
    ("space", Split, Split): _all_to_all,
    ("space", type(R), Split): _cut(TensorSplit),
    ("space", type(R), Partial): _to_partial,
    ("time", Partial, type(R)): _accumulate,
    ("time", Split, type(R)): _gathered(Stack),
    ("time", type(R), Split): _cut(Microbatch),
}
