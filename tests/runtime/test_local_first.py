"""A sum in a tree over several processes: the bits of one memory, and less to send."""

from __future__ import annotations

import random

import numpy as np
import pytest

from graphc.ir.collectives import Collective
from graphc.ir.leaf_tree import forests
from graphc.ir.orders import Order
from graphc.ir.placement import Partial, R
from graphc.runtime.transports.exchange import Scratch, add_in_order, exchange
from graphc.runtime.transports.local_first import LocalFirst, local_first
from graphc.runtime.transports.transport import CollectiveCall

TREE = Collective(Partial(), R, Order.TREE)


def call(members: int, leaves: tuple[int, int] | None = None) -> CollectiveCall:
    return CollectiveCall(TREE, tuple(range(members)), leaves=leaves)


def sent(divided: LocalFirst) -> list[int]:
    """How many pieces each process sends."""
    owners = {}
    for i, process in enumerate(divided.members):
        owners[process] = owners.get(process, 0) + divided.sent_by(i)
    return [owners[k] for k in sorted(owners)]


def summed(divided: LocalFirst, xs: list[np.ndarray], leading: bool) -> np.ndarray:
    """The sum as processes make it, each with its own arrays only."""
    rows = xs if leading else [x[None] for x in xs]
    got = []
    for i, process in enumerate(divided.members):
        here = [x if p == process else None for x, p in zip(rows, divided.members, strict=True)]
        made = divided.reduced(here, process, "sum")
        got.append(made if divided.sent_by(i) else [])
        assert len(got[-1]) == divided.sent_by(i)
    out = np.empty(xs[0].shape[leading:], xs[0].dtype)
    add_in_order([got[i][row] for i, row in divided.places], out, "sum", divided.rest)
    return out


def divide(what: CollectiveCall, members: list[int]) -> LocalFirst | None:
    return local_first(what.collective.order, what.leaves, tuple(members))


def drawn(seed: int) -> tuple[CollectiveCall, list[int], list[np.ndarray]]:
    """A call, the process of each position, and the arrays."""
    rng, numbers = random.Random(f"local first {seed}"), np.random.default_rng(seed)
    n = rng.randrange(1, 9)
    members = sorted(rng.randrange(3) for _ in range(n))
    if seed % 4 == 0:  # processes whose ranks are no neighbours
        rng.shuffle(members)
    if seed % 2:
        return call(n), members, [numbers.normal(size=(2, 3)).astype(np.float32) for _ in range(n)]
    each = rng.randrange(1, 6)
    leaves = (each, rng.randrange(1, each * n + 1))
    room = max(map(len, forests(n, *leaves)))
    xs = [numbers.normal(size=(room, 5)).astype(np.float32) for _ in range(n)]
    return call(n, leaves), members, xs


def test_every_bit_is_that_of_one_memory() -> None:
    for seed in range(300):
        what, members, xs = drawn(seed)
        divided = divide(what, members)
        assert divided is not None
        found = summed(divided, xs, what.leaves is not None)
        want = np.empty_like(found)
        exchange(what, xs, [want] + [None] * (len(xs) - 1), 0, 1, Scratch())
        assert found.tobytes() == want.tobytes(), f"{seed}: {what} in {members}"
        assert len(divided.left) <= sum(map(len, forests(len(xs), *(what.leaves or (1, len(xs))))))


@pytest.mark.parametrize("each", [1, 2, 4])
def test_a_process_of_four_neighbours_sends_one_piece(each: int) -> None:
    divided = divide(call(8, (each, 8 * each)), [0, 0, 0, 0, 1, 1, 1, 1])
    assert divided is not None and sent(divided) == [1, 1] and divided.rest == ((0, 1),)


def test_ranks_that_are_no_neighbours_send_each_their_own() -> None:
    divided = divide(call(4), [0, 1, 0, 1])
    assert divided is not None and sent(divided) == [2, 2] and not divided.own


def test_a_running_sum_is_left_alone() -> None:
    assert local_first(Order.ACCUMULATE, None, (0, 0)) is None
    assert local_first(None, None, (0, 0)) is None


def test_in_the_order_of_the_transport_each_process_sends_one_sum() -> None:
    assert local_first(Order.ADD_N, None, (0, 1, 2)) is None  # a running sum, as in one memory
    for members in ((0, 0, 0, 1, 1), (0, 1, 0, 1), (1, 1, 0, 0, 1)):
        divided = local_first(Order.ADD_N, None, members)
        assert divided is not None and sent(divided) == [1, 1] and len(divided.rest) == 1
        xs = [np.random.default_rng(i).integers(-99, 99, (2, 3)) for i in range(len(members))]
        assert np.array_equal(summed(divided, xs, leading=False), sum(xs))
