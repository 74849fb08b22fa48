"""Forests of leaves, joined by the local transport: bit for bit the tree over the present leaves."""

import numpy as np
import pytest
from runtime.test_collectives import COMBINE, DTYPES, same, tree, values

from graphc.ir.collectives import Collective
from graphc.ir.leaf_tree import most_pieces, pieces
from graphc.ir.orders import Order
from graphc.ir.placement import Home, Partial, R, Split, capacity, shard_bounds
from graphc.ops.settle import grow
from graphc.runtime.transports.transport import CollectiveCall, Parts

BIG = 40_000


@pytest.mark.one_in(3)
@pytest.mark.parametrize("op", sorted(COMBINE))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("slots, n", [(1, 1), (8, 1), (8, 2), (13, 3), (7, 5), (8, 8)])
def test_any_deal_of_leaves_gives_the_same_bits(slots, n, dtype, op, session, cut):
    each = -(-slots // n)
    for present in {1, slots // 2 + 1, slots}:
        check(np.random.default_rng(slots), (5, 3), dtype, op, (slots, n, each, present), session)


def test_forests_larger_than_a_block_are_joined_alike(session):
    check(np.random.default_rng(0), (BIG * 3,), DTYPES[0], "sum", (8, 3, 3, 7), session)


def check(rng, shape, dtype, op, deal, session):
    slots, n, each, present = deal
    leaves = [values(rng, shape, dtype) for _ in range(present)]
    forests = []
    for first in range(0, n * each, each):
        junk = np.full((most_pieces(slots, each), *shape), 77, dtype)
        for turn in range(max(0, min(each, present - first))):
            grow(junk, leaves[first + turn], first, turn, COMBINE[op])
        forests.append(junk)
        assert len(pieces(first, min(first + each, present))) <= len(junk)
    group, total = tuple(range(n)), tree(leaves, op)
    call = CollectiveCall(Collective(Partial(op), R, Order.TREE), group, leaves=(each, present))
    got = session(n).run(lambda c: c.start(call, forests[c.rank]).wait())
    assert all(same(y, total) for y in got)
    check_parts(group, op, (each, present), forests, total, session)
    roots = group[::2]
    owned = Collective(Partial(op), Home(0), Order.TREE)
    call = CollectiveCall(owned, group, owners=roots, leaves=(each, present))
    got = session(n).run(lambda c: c.start(call, forests[c.rank]).wait())
    assert all(same(y, total) if r in roots else y is None for r, y in enumerate(got))


def check_parts(group, op, deal, forests, total, session):
    """Scatter the sum along its first dim: every device alone, and two by two the same part."""
    count, n = len(total), len(group)
    for parts in {n, -(-n // 2)}:
        room = capacity(count, (parts,)) + 1
        spans = tuple(shard_bounds(count, [(parts, i % parts)]) for i in group)
        what = Collective(Partial(op), Split(0), Order.TREE)
        call = CollectiveCall(what, group, after=Parts(0, spans, room), leaves=deal)
        got = session(n).run(lambda c, call=call: c.start(call, forests[c.rank]).wait())
        for y, (start, length) in zip(got, spans, strict=True):
            assert same(y[:length], total[start : start + length]) and len(y) == room
            assert not y[length:].any()


def test_parts_that_lie_outside_are_refused():
    after = Parts(0, ((0, 3), (3, 3)), 3)
    what = Collective(Partial(), Split(0), Order.TREE)
    call = CollectiveCall(what, (0, 1), after=after, leaves=(1, 2))
    with pytest.raises(AssertionError, match="a whole of 5"):
        call.result((2, 5, 3))
    assert call.result((2, 6, 3)) == (3, 3)
