"""Collectives of the local transport: laws against plain NumPy, bit for bit."""

import functools
import gc
import time
import weakref

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime import calls

from graphc.ir.orders import Order
from graphc.ir.placement import capacity, shard_bounds
from graphc.runtime.transports import exchange, rendezvous

DTYPES = [np.dtype(t) for t in (np.float32, np.float64, np.int32, ml_dtypes.bfloat16)]
COMBINE = {"sum": np.add, "max": np.maximum, "min": np.minimum}
BIG = 40_000  # elements: above the size at which an exchange is cut into parts


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def values(rng, shape, dtype):
    return (rng.standard_normal(shape) * 100).astype(dtype)


def chain(xs, op):
    return functools.reduce(COMBINE[op], xs)


def tree(xs, op):
    """The balanced tree: the left half is the largest power of two that leaves something."""
    if len(xs) == 1:
        return xs[0]
    half = 1 << (len(xs) - 1).bit_length() - 1
    return COMBINE[op](tree(xs[:half], op), tree(xs[half:], op))


ORDERS = {Order.ADD_N: chain, Order.TREE: tree, Order.ACCUMULATE: chain}


def lengths_of(count, n):
    return tuple(shard_bounds(count, [(n, i)])[1] for i in range(n))


def shards(whole, dim, lengths, room, fill):
    """The parts of `whole` along dim, padded with `fill` to `room` entries."""
    ends = np.cumsum(lengths)
    parts = []
    for length, end in zip(lengths, ends, strict=True):
        part = whole.take(range(end - length, end), dim)
        parts.append(padded(part, dim, room, fill))
    return parts


def padded(x, dim, room, fill):
    width = [(0, room - n if i == dim else 0) for i, n in enumerate(x.shape)]
    return np.pad(x, width, constant_values=np.array(fill).astype(x.dtype))


def junk(dtype):
    return 77 if dtype.kind == "i" else np.nan


# -- laws against plain NumPy ----------------------------------------------------------------------

CASES = st.fixed_dictionaries(
    {
        "n": st.integers(1, 8),
        "shape": st.lists(st.integers(0, 5), min_size=2, max_size=4).map(tuple),
        "dim": st.integers(0, 1),
        "count": st.integers(0, 20),
        "spare": st.integers(0, 2),
        "op": st.sampled_from(sorted(COMBINE)),
        "order": st.sampled_from(list(ORDERS)),
        "dtype": st.sampled_from(DTYPES),
        "small": st.sampled_from([-1, 1 << 16]),
        "seed": st.integers(0, 2**32 - 1),
    }
)


class Case:
    """One drawn case: a group of n in a session, an uneven cut of `count` entries along dim."""

    def __init__(self, case):
        vars(self).update(case)
        self.rng = np.random.default_rng(self.seed)
        self.group = tuple(self.rng.permutation(self.n).tolist())
        self.lengths = lengths_of(self.count, self.n)
        self.room = capacity(self.count, (self.n,)) + self.spare
        self.total = self.count + self.spare

    def whole(self):
        shape = list(self.shape)
        shape[self.dim] = self.count
        return values(self.rng, shape, self.dtype)

    def total_of(self, xs, session):
        """The reduction in the order that is asked for; if any is allowed, each process first adds
        up what its ranks have."""
        of_process = {}
        for rank, x in zip(self.group, xs, strict=True):
            of_process.setdefault(rank // getattr(session(self.n), "each", self.n), []).append(x)
        if self.order is Order.ADD_N:
            xs = [chain(own, self.op) for own in of_process.values()]
        return ORDERS[self.order](xs, self.op)

    def run(self, session, fn):
        """fn(comm, position) on every rank; results by position."""
        old, rendezvous.SMALL = rendezvous.SMALL, self.small
        try:
            results = session(self.n).run(lambda c: fn(c, self.group.index(c.rank)))
        finally:
            rendezvous.SMALL = old
        return [results[rank] for rank in self.group]


def law(test):
    return given(case=CASES.map(Case))(settings(max_examples=80, deadline=None)(test))


@law
def test_all_reduce_is_the_reduction_in_its_order_bit_for_bit_on_every_rank(case, session):
    xs = [case.whole() for _ in case.group]
    expected = case.total_of(xs, session)
    copies = [x.copy() for x in xs]
    got = case.run(
        session, lambda c, i: calls.all_reduce(c, copies[i], case.op, case.group, case.order)
    )
    assert all(same(y, expected) for y in got)
    assert all(map(same, xs, copies))
    in_place = [x.copy() for x in xs]
    got = case.run(
        session,
        lambda c, i: calls.all_reduce(
            c, in_place[i], case.op, case.group, case.order, out=in_place[i]
        ),
    )
    assert all(y is x and same(y, expected) for x, y in zip(in_place, got, strict=True))


@law
def test_reduce_gives_the_root_the_reduction_and_the_others_nothing(case, session):
    xs = [case.whole() for _ in case.group]
    expected = case.total_of(xs, session)
    root = case.seed % case.n
    for out in (False, True):
        ys = [x.copy() for x in xs]
        got = case.run(
            session,
            lambda c, i, ys=ys, out=out: calls.reduce(
                c, ys[i], case.op, root, case.group, case.order, out=ys[i] if out else None
            ),
        )
        at = case.group.index(root)
        assert same(got.pop(at), expected)
        assert got == [None] * (case.n - 1)
        assert all(same(y, x) for i, (x, y) in enumerate(zip(xs, ys, strict=True)) if i != at)


@law
def test_broadcast_gives_all_a_copy_of_the_root(case, session):
    xs = [case.whole() for _ in case.group]
    root = case.seed % case.n
    got = case.run(session, lambda c, i: calls.broadcast(c, xs[i], root, case.group))
    assert all(same(y, xs[case.group.index(root)]) for y in got)
    assert all(y is not x for x, y in zip(xs, got, strict=True))


@law
def test_all_gather_joins_what_is_valid_and_pads_with_zeros(case, session):
    whole = case.whole()
    parts = shards(whole, case.dim, case.lengths, case.room, junk(case.dtype))
    expected = padded(whole, case.dim, case.total, 0)
    got = case.run(
        session,
        lambda c, i: calls.all_gather(c, parts[i], case.group, case.dim, case.lengths, case.total),
    )
    assert all(same(y, expected) for y in got)


@law
def test_reduce_scatter_is_a_piece_of_the_reduction_and_pads_with_zeros(case, session):
    xs = [padded(case.whole(), case.dim, case.total, junk(case.dtype)) for _ in case.group]
    valid = [x.take(range(case.count), case.dim) for x in xs]
    whole = case.total_of(valid, session)
    expected = shards(whole, case.dim, case.lengths, case.room, 0)
    got = case.run(
        session,
        lambda c, i: calls.reduce_scatter(
            c, xs[i], case.op, case.group, case.dim, case.lengths, case.room, case.order
        ),
    )
    assert all(map(same, got, expected))


@law
def test_all_to_all_moves_the_split_from_one_dim_to_another(case, session):
    split = 1 - case.dim
    count = case.seed % 11
    cut = lengths_of(count, case.n)
    room = capacity(count, (case.n,)) + case.spare
    shape = list(case.shape)
    shape[case.dim], shape[split] = case.count, count
    whole = values(case.rng, shape, case.dtype)
    wide = padded(whole, split, count + case.spare, junk(case.dtype))
    parts = shards(wide, case.dim, case.lengths, case.room, junk(case.dtype))
    expected = shards(padded(whole, case.dim, case.total, 0), split, cut, room, 0)
    got = case.run(
        session,
        lambda c, i: calls.all_to_all(
            c, parts[i], case.group, split, cut, room, case.dim, case.lengths, case.total
        ),
    )
    assert all(map(same, got, expected))


@law
def test_reduce_scatter_then_all_gather_is_all_reduce(case, session):
    xs = [case.whole() for _ in case.group]
    expected = case.total_of(xs, session)

    def both(c, i):
        piece = calls.reduce_scatter(
            c, xs[i], case.op, case.group, case.dim, case.lengths, case.room, case.order
        )
        return calls.all_gather(c, piece, case.group, case.dim, case.lengths, case.count)

    assert all(same(y, expected) for y in case.run(session, both))


@pytest.mark.parametrize("n", [2, 3, 7])
@pytest.mark.parametrize("order", list(ORDERS))
def test_arrays_larger_than_a_block_are_reduced_alike(n, order, monkeypatch, session):
    """Planes with long and with short rows, in windows of a few elements."""
    monkeypatch.setattr("graphc.runtime.transports.exchange.BLOCK", 64)
    rng = np.random.default_rng(0)
    group = tuple(range(n))
    for shape, dim in (((BIG,), 0), ((3, 50), 1), ((50, 3), 1), ((7, 9, 5), 1)):
        xs = [values(rng, shape, np.float32) for _ in group]
        whole, lengths = ORDERS[order](xs, "sum"), lengths_of(shape[dim], n)
        room = max(lengths)
        got = session(n).run(
            lambda c, xs=xs, dim=dim, lengths=lengths, room=room: (
                calls.all_reduce(c, xs[c.rank], "sum", group, order),
                calls.reduce_scatter(c, xs[c.rank], "sum", group, dim, lengths, room, order),
            )
        )
        pieces = shards(whole, dim, lengths, room, 0)
        for (reduced, piece), expected in zip(got, pieces, strict=True):
            assert same(reduced, whole) and same(piece, expected)


@pytest.mark.usefixtures("cut")
def test_scalars_and_strided_arrays_are_taken_and_filled(session):
    group = (0, 1, 2)

    def fn(c):
        scalar = calls.all_reduce(c, np.float32(c.rank), "sum", group)
        x = np.full((4, 6), c.rank, np.float32)
        out = np.full((6, 4), -1, np.float32)
        result = calls.all_reduce(c, x[:, ::2], "max", group, out=out[::2].T)
        return scalar, result, out

    for scalar, result, out in session(3).run(fn):
        assert scalar.shape == () and scalar == 3
        assert (result == 2).all() and (out[::2] == 2).all() and (out[1::2] == -1).all()


@pytest.mark.usefixtures("cut")
def test_groups_of_a_mesh_of_2_by_3_work_side_by_side(session):
    """Rows, columns and the whole mesh, 30 times over, the ranks out of step with each other."""

    def fn(c):
        row, column = divmod(c.rank, 3)
        rows = tuple(range(3 * row, 3 * row + 3))
        columns = (column, column + 3)
        seen = []
        for i in range(30):
            x = np.array([c.rank, i, 1.0])
            if (c.rank + i) % 5 == 0:
                time.sleep(0.0005)
            seen.append(
                (
                    calls.all_reduce(c, x, "sum", rows).tolist(),
                    calls.all_gather(c, x, columns, 0, (3, 1), 4).tolist(),
                    calls.all_reduce(c, x, "max", tuple(range(6)), Order.TREE).tolist(),
                )
            )
        return seen

    for rank, seen in enumerate(session(6).run(fn)):
        row, column = divmod(rank, 3)
        for i, (across, down, most) in enumerate(seen):
            assert across == [3 * (3 * row + 1), 3 * i, 3]
            assert down == [column, i, 1, column + 3]
            assert most == [5, i, 1]


@pytest.mark.usefixtures("cut")
def test_collectives_under_way_may_be_waited_for_in_any_order(session):
    def fn(c):
        group = (0, 1, 2)
        xs = [np.full(100, 10.0 * i + c.rank) for i in range(4)]
        handles = [c.start(calls.sum_of(group, "sum"), x) for x in xs]
        order = np.random.default_rng(c.rank).permutation(4)
        results = {int(i): handles[i].wait() for i in order}
        assert all(handles[i].wait() is results[i] for i in range(4))
        return [results[i][0] for i in range(4)]

    assert session(3).run(fn) == [[3, 33, 63, 93]] * 3


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("late", [0, 1])
def test_a_handle_that_one_rank_never_waits_for_does_not_stop_the_others(late, session):
    def fn(c):
        time.sleep(0.02 * (c.rank == late))
        handle = c.start(calls.sum_of((0, 1), "sum"), np.ones(4))
        return handle.wait().tolist() if c.rank else None

    assert session(2).run(fn) == [None, [2, 2, 2, 2]]


@pytest.mark.one_in(2)
@pytest.mark.usefixtures("cut")
def test_a_handle_that_has_been_waited_for_holds_no_operand(session):
    def fn(c):
        x = np.zeros(10)
        handle = c.start(calls.sum_of((0, 1), "sum"), x)
        handle.wait()
        c.barrier((0, 1))
        watch = weakref.ref(x)
        del x
        gc.collect()
        return watch() is None, handle

    assert [gone for gone, _ in session(2).run(fn)] == [True, True]


@pytest.mark.parametrize("size", [2, 4])
def test_a_slow_exchange_of_big_arrays_is_right(size, session):
    group = tuple(range(size))
    xs = [np.full(BIG * 10, 2.0**r, np.float32) for r in group]
    for y in session(size).run(lambda c: calls.all_reduce(c, xs[c.rank], "sum", group)):
        assert (y == 2.0**size - 1).all()


@pytest.mark.parametrize("count", range(1, 6))
@pytest.mark.parametrize("into", [None, 0, 1, 2, 3, 4])
@pytest.mark.parametrize("block", [1 << 18, 16])
def test_a_sum_from_left_to_right_may_be_written_over_any_of_its_terms(
    count, into, block, monkeypatch
):
    monkeypatch.setattr(exchange, "BLOCK", block)
    rng = np.random.default_rng(count)
    rows = [values(rng, 9, np.float32) for _ in range(count)]
    expected = chain(rows, "sum").copy()
    out = np.empty(9, np.float32) if into is None else rows[into % count]
    exchange.add_in_order(rows, out, "sum", None)
    assert out.tobytes() == expected.tobytes()
