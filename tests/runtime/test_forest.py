"""Forests of leaves, joined by the local transport: bit for bit the tree over the present leaves."""

import numpy as np
import pytest
from runtime.test_collectives import COMBINE, DTYPES, same, tree, values

from graphc.leaves import most_pieces, pieces
from graphc.runtime.conversions import grow
from graphc.runtime.transport import TreeReduce

BIG = 40_000


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
    call = TreeReduce(tuple(range(n)), op, each, present)
    got = session(n).run(lambda c: c.start(call, forests[c.rank]).wait())
    assert all(same(y, tree(leaves, op)) for y in got)
