"""The calls of a transport, as tests write them: by their kinds, with plain lengths."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from graphc.ir.collectives import Collective
from graphc.ir.orders import Order
from graphc.ir.placement import Home, Partial, R, ReduceOp, Split
from graphc.runtime.transports.transport import CollectiveCall, Communicator, Group, Parts

Lengths = tuple[int, ...]
ADD_N = Order.ADD_N


def parts(dim: int, lengths: Lengths, size: int) -> Parts:
    """Parts of these lengths, one behind the other."""
    ends = accumulate(lengths)
    return Parts(dim, tuple((end - n, n) for n, end in zip(lengths, ends, strict=True)), size)


def sum_of(
    group: Group, op: ReduceOp = "sum", order: Order = ADD_N, where: str = ""
) -> CollectiveCall:
    return CollectiveCall(Collective(Partial(op), R, order), group, where=where)


def gather_of(group: Group, dim: int, lengths: Lengths, total: int) -> CollectiveCall:
    return CollectiveCall(Collective(Split(dim), R), group, parts(dim, lengths, total))


def all_reduce(
    c: Communicator, x: Any, op: ReduceOp, group: Group, order: Order = ADD_N, out: Any = None
) -> Any:
    return c.start(sum_of(group, op, order), x, out).wait()


def reduce(
    c: Communicator, x: Any, op: ReduceOp, root: int, group: Group, order: Order = ADD_N,
    out: Any = None,
) -> Any:  # fmt: skip
    what = Collective(Partial(op), Home(0), order)
    return c.start(CollectiveCall(what, group, owners=(root,)), x, out).wait()


def broadcast(c: Communicator, x: Any, root: int, group: Group) -> Any:
    return c.start(CollectiveCall(Collective(Home(0), R), group, owners=(root,)), x).wait()


def reduce_scatter(
    c: Communicator, x: Any, op: ReduceOp, group: Group, dim: int, lengths: Lengths, capacity: int,
    order: Order = ADD_N,
) -> Any:  # fmt: skip
    what, after = Collective(Partial(op), Split(dim), order), parts(dim, lengths, capacity)
    return c.start(CollectiveCall(what, group, after=after), x).wait()


def all_gather(
    c: Communicator, x: Any, group: Group, dim: int, lengths: Lengths, total: int
) -> Any:
    return c.start(gather_of(group, dim, lengths, total), x).wait()


def all_to_all(
    c: Communicator, x: Any, group: Group, split_dim: int, split_lengths: Lengths, capacity: int,
    concat_dim: int, concat_lengths: Lengths, total: int,
) -> Any:  # fmt: skip
    before, after = (
        parts(concat_dim, concat_lengths, total),
        parts(split_dim, split_lengths, capacity),
    )
    what = Collective(Split(concat_dim), Split(split_dim))
    return c.start(CollectiveCall(what, group, before, after), x).wait()
