"""Exchanges between GPUs, on what stands for NCCL: the results are those of one memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from backends.cupy.on_gpus import OnGpus
from backends.cupy.stand_in_gpus import StandInMachine
from graphc_cupy import exchange_plans
from graphc_cupy.library import Gpu
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime.calls import parts

from graphc.ir.collectives import Collective
from graphc.ir.orders import Order
from graphc.ir.placement import Home, Partial, R, Split
from graphc.ir.types import BF16, BOOL, F32, I32, DType
from graphc.runtime.transports.exchange import Scratch, exchange
from graphc.runtime.transports.transport import CollectiveCall

KINDS = ["all_reduce", "reduce", "reduce_scatter", "broadcast", "all_gather", "all_to_all"]


def drawn_call(rng: np.random.Generator, kind: str, n: int, order: Order) -> tuple[Any, Any]:
    """A call of a group of n, and the shape of what each has."""
    group, shape = tuple(range(n)), [int(k) for k in rng.integers(0, 5, 3)]
    dim, other = (int(k) for k in rng.permutation(3)[:2])
    op = Partial(["sum", "max", "min"][rng.integers(3)])
    lengths = tuple(int(k) for k in rng.integers(0, 4, n))
    if rng.integers(2):
        lengths = (lengths[0],) * n
    padded, whole = max(lengths) + int(rng.integers(2)), sum(lengths) + int(rng.integers(2))
    owners = tuple(k for k in group if rng.integers(2)) or (0,)
    match kind:
        case "all_reduce":
            return CollectiveCall(Collective(op, R, order), group), shape
        case "reduce":
            return CollectiveCall(Collective(op, Home(0), order), group, owners=owners), shape
        case "broadcast":
            return CollectiveCall(Collective(Home(0), R), group, owners=owners[:1]), shape
        case "reduce_scatter":
            shape[dim] = whole
            after = parts(dim, lengths, padded)
            return CollectiveCall(Collective(op, Split(dim), order), group, after=after), shape
        case "all_gather":
            shape[dim] = padded
            before = parts(dim, lengths, whole)
            return CollectiveCall(Collective(Split(dim), R), group, before), shape
    several = tuple(int(k) for k in rng.integers(0, 4, n))
    shape[dim], shape[other] = padded, sum(several) + int(rng.integers(2))
    before, after = parts(dim, lengths, whole), parts(other, several, max(several))
    return CollectiveCall(Collective(Split(dim), Split(other)), group, before, after), shape


def drawn_gpus(rng: np.random.Generator, n: int, count: int) -> tuple[int, ...]:
    """The GPU of each of n members: blocks in a row, or any."""
    blocks = tuple(k * count // n for k in range(n))
    return blocks if rng.integers(3) else tuple(int(k) for k in rng.permutation(blocks))


def values(rng: np.random.Generator, dtype: DType, shape: Any) -> Any:
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    return (rng.standard_normal(shape) * 100).astype(dtype.numpy)


def leaves_of(rng: np.random.Generator, n: int) -> tuple[tuple[int, int], int]:
    """Leaves, and how many pieces a member may have."""
    each = int(rng.integers(1, 5))
    return (each, int(rng.integers(1, each * n + 1))), each


def check(kind: str, gpus: Sequence[Gpu], each: int, order: Order, dtype: DType, seed: int) -> None:
    count = len(gpus)
    rng, n = np.random.default_rng(seed), count * each
    call, shape = drawn_call(rng, kind, n, order)
    if isinstance(call.collective.source, Partial) and rng.integers(2):
        leaves, pieces = leaves_of(rng, n)
        call = CollectiveCall(
            call.collective, call.group, call.before, call.after, call.owners, leaves
        )
        shape = [pieces, *shape]
    xs = [values(rng, dtype, tuple(shape)) for _ in range(n)]
    result = call.result(tuple(shape))
    receivers = [call.receives(k) for k in call.group]
    wanted = [values(rng, dtype, result) if r else None for r in receivers]
    outs = [values(rng, dtype, result) if r else None for r in receivers]
    exchange(call, xs, wanted, 0, 1, Scratch())
    found = OnGpus(gpus).run(call, drawn_gpus(rng, n, count), dtype, xs, outs)
    for got, want in zip(found, wanted, strict=True):
        assert (got is None) == (want is None)
        assert got is None or got.tobytes() == want.tobytes()


EXACT = [  # orders and dtypes whose sums have one result
    (Order.TREE, F32), (Order.ACCUMULATE, F32), (Order.TREE, BF16), (Order.ADD_N, I32),
    (Order.ADD_N, BOOL), (Order.ACCUMULATE, I32),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=6, deadline=None)
@given(st.integers(2, 4), st.integers(1, 2), st.sampled_from(EXACT), st.integers(0, 2**32 - 1))
def test_an_exchange_of_gpus_is_that_of_one_memory(
    kind: str, count: int, each: int, how: tuple[Order, DType], seed: int
) -> None:
    check(kind, StandInMachine(count).every, each, *how, seed)


@pytest.mark.ci
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(st.integers(2, 4), st.integers(1, 3), st.sampled_from(EXACT), st.integers(0, 2**32 - 1))
def test_many_exchanges_of_gpus_are_those_of_one_memory(
    kind: str, count: int, each: int, how: tuple[Order, DType], seed: int
) -> None:
    check(kind, StandInMachine(count).every, each, *how, seed)


@pytest.mark.parametrize("each", [1, 2])
def test_a_large_sum_in_a_fixed_order_is_added_up_in_parts(
    each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange_plans, "AT_ONCE", 0)
    rng, n = np.random.default_rng(0), 3 * each
    call = CollectiveCall(Collective(Partial("sum"), R, Order.TREE), tuple(range(n)))
    xs = [values(rng, F32, (31, 41)) for _ in range(n)]
    wanted, outs = ([np.empty_like(x) for x in xs] for _ in range(2))
    exchange(call, xs, wanted, 0, 1, Scratch())
    gpus, machine = tuple(k // each for k in range(n)), StandInMachine(3)
    found = OnGpus(machine.every).run(call, gpus, F32, xs, outs)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(found, wanted, strict=True))
    sent = sum(x[0] for *_, method, x in machine.world.log if method == "send")
    assert sent <= 3 * 2 * 2 * (xs[0].nbytes // 3 + 1024)  # a third to each of two, and back
