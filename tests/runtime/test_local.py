"""The local transport: collectives against plain NumPy, failure, mismatch, deadline, no leaks."""

import contextlib
import functools
import gc
import importlib.metadata
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
import weakref

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphc.errors import GraphcError, InternalError
from graphc.placement import capacity, chop
from graphc.runtime import rendezvous
from graphc.runtime.local import TRANSPORT
from graphc.runtime.transport import AllGather, AllReduce, PeerFailed

DTYPES = [np.dtype(t) for t in (np.float32, np.float64, np.int32, ml_dtypes.bfloat16)]
COMBINE = {"sum": np.add, "max": np.maximum, "min": np.minimum}
BIG = 40_000  # elements: above the size at which an exchange is cut into parts


@functools.cache
def session(size):
    return TRANSPORT.open(size)


@pytest.fixture(scope="module", autouse=True)
def _close_sessions():
    yield
    for size in range(1, 9):
        session(size).close()
    session.cache_clear()


@pytest.fixture(params=["one rank does it", "in parts"])
def cut(request, monkeypatch):
    """Both ways of an exchange, for arrays of any size."""
    monkeypatch.setattr(rendezvous, "SMALL", -1 if request.param == "in parts" else 1 << 40)


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


ORDERS = {"engine": chain, "tree": tree}


def lengths_of(count, n):
    return tuple(chop(count, [(n, i)])[1] for i in range(n))


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


class Big(np.ndarray):
    """An array that can be watched."""


# -- laws against plain NumPy ----------------------------------------------------------------------

CASES = st.fixed_dictionaries(
    {
        "n": st.integers(1, 8),
        "shape": st.lists(st.integers(0, 5), min_size=2, max_size=4).map(tuple),
        "dim": st.integers(0, 1),
        "count": st.integers(0, 20),
        "spare": st.integers(0, 2),
        "op": st.sampled_from(sorted(COMBINE)),
        "order": st.sampled_from(sorted(ORDERS)),
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

    def whole(self, count=None, dim=None):
        dim = self.dim if dim is None else dim
        shape = list(self.shape)
        shape[dim] = self.count if count is None else count
        return values(self.rng, shape, self.dtype)

    def run(self, fn, with_out=None):
        """fn(comm, position) on every rank; results by position."""
        old, rendezvous.SMALL = rendezvous.SMALL, self.small
        try:
            results = session(self.n).run(lambda c: fn(c, self.group.index(c.rank)))
        finally:
            rendezvous.SMALL = old
        return [results[rank] for rank in self.group]


def law(test):
    return given(CASES.map(Case))(settings(max_examples=80, deadline=None)(test))


@law
def test_all_reduce_is_the_reduction_in_its_order_bit_for_bit_on_every_rank(case):
    xs = [case.whole() for _ in case.group]
    expected = ORDERS[case.order](xs, case.op)
    copies = [x.copy() for x in xs]
    got = case.run(lambda c, i: c.all_reduce(copies[i], case.op, case.group, case.order))
    assert all(same(y, expected) for y in got)
    assert all(map(same, xs, copies))
    in_place = [x.copy() for x in xs]
    got = case.run(
        lambda c, i: c.all_reduce(in_place[i], case.op, case.group, case.order, out=in_place[i])
    )
    assert all(y is x and same(y, expected) for x, y in zip(in_place, got, strict=True))


@law
def test_reduce_gives_the_root_the_reduction_and_the_others_nothing(case):
    xs = [case.whole() for _ in case.group]
    expected = ORDERS[case.order](xs, case.op)
    root = case.seed % case.n
    for out in (False, True):
        ys = [x.copy() for x in xs]
        got = case.run(
            lambda c, i, ys=ys, out=out: c.reduce(
                ys[i], case.op, root, case.group, case.order, out=ys[i] if out else None
            )
        )
        at = case.group.index(root)
        assert same(got.pop(at), expected)
        assert got == [None] * (case.n - 1)
        assert all(same(y, x) for i, (x, y) in enumerate(zip(xs, ys, strict=True)) if i != at)


@law
def test_broadcast_gives_all_a_copy_of_the_root(case):
    xs = [case.whole() for _ in case.group]
    root = case.seed % case.n
    got = case.run(lambda c, i: c.broadcast(xs[i], root, case.group))
    assert all(same(y, xs[case.group.index(root)]) for y in got)
    assert all(y is not x for x, y in zip(xs, got, strict=True))


@law
def test_all_gather_joins_what_is_valid_and_pads_with_zeros(case):
    whole = case.whole()
    parts = shards(whole, case.dim, case.lengths, case.room, junk(case.dtype))
    expected = padded(whole, case.dim, case.total, 0)
    got = case.run(
        lambda c, i: c.all_gather(parts[i], case.group, case.dim, case.lengths, case.total)
    )
    assert all(same(y, expected) for y in got)


@law
def test_reduce_scatter_is_a_piece_of_the_reduction_and_pads_with_zeros(case):
    xs = [padded(case.whole(), case.dim, case.total, junk(case.dtype)) for _ in case.group]
    valid = [x.take(range(case.count), case.dim) for x in xs]
    whole = ORDERS[case.order](valid, case.op)
    expected = shards(whole, case.dim, case.lengths, case.room, 0)
    got = case.run(
        lambda c, i: c.reduce_scatter(
            xs[i], case.op, case.group, case.dim, case.lengths, case.room, case.order
        )
    )
    assert all(map(same, got, expected))


@law
def test_all_to_all_moves_the_split_from_one_dim_to_another(case):
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
        lambda c, i: c.all_to_all(
            parts[i], case.group, split, cut, room, case.dim, case.lengths, case.total
        )
    )
    assert all(map(same, got, expected))


@law
def test_reduce_scatter_then_all_gather_is_all_reduce(case):
    xs = [case.whole() for _ in case.group]
    expected = ORDERS[case.order](xs, case.op)

    def both(c, i):
        piece = c.reduce_scatter(
            xs[i], case.op, case.group, case.dim, case.lengths, case.room, case.order
        )
        return c.all_gather(piece, case.group, case.dim, case.lengths, case.count)

    assert all(same(y, expected) for y in case.run(both))


@pytest.mark.parametrize("n", [2, 3, 7])
@pytest.mark.parametrize("order", sorted(ORDERS))
def test_arrays_larger_than_a_block_are_reduced_alike(n, order, monkeypatch):
    """Planes with long and with short rows, in windows of a few elements."""
    monkeypatch.setattr("graphc.runtime.exchange.BLOCK", 64)
    rng = np.random.default_rng(0)
    group = tuple(range(n))
    for shape, dim in (((BIG,), 0), ((3, 50), 1), ((50, 3), 1), ((7, 9, 5), 1)):
        xs = [values(rng, shape, np.float32) for _ in group]
        whole, lengths = ORDERS[order](xs, "sum"), lengths_of(shape[dim], n)
        room = max(lengths)
        got = session(n).run(
            lambda c, xs=xs, dim=dim, lengths=lengths, room=room: (
                c.all_reduce(xs[c.rank], "sum", group, order),
                c.reduce_scatter(xs[c.rank], "sum", group, dim, lengths, room, order),
            )
        )
        pieces = shards(whole, dim, lengths, room, 0)
        for (reduced, piece), expected in zip(got, pieces, strict=True):
            assert same(reduced, whole) and same(piece, expected)


@pytest.mark.usefixtures("cut")
def test_scalars_and_strided_arrays_are_taken_and_filled():
    group = (0, 1, 2)

    def fn(c):
        scalar = c.all_reduce(np.float32(c.rank), "sum", group)
        x = np.full((4, 6), c.rank, np.float32)
        out = np.full((6, 4), -1, np.float32)
        result = c.all_reduce(x[:, ::2], "max", group, out=out[::2].T)
        return scalar, result, out

    for scalar, result, out in session(3).run(fn):
        assert scalar.shape == () and scalar == 3
        assert (result == 2).all() and (out[::2] == 2).all() and (out[1::2] == -1).all()


@pytest.mark.usefixtures("cut")
def test_groups_of_a_mesh_of_2_by_3_work_side_by_side():
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
                    c.all_reduce(x, "sum", rows).tolist(),
                    c.all_gather(x, columns, 0, (3, 1), 4).tolist(),
                    c.all_reduce(x, "max", tuple(range(6)), "tree").tolist(),
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
def test_collectives_under_way_may_be_waited_for_in_any_order():
    def fn(c):
        group = (0, 1, 2)
        xs = [np.full(100, 10.0 * i + c.rank) for i in range(4)]
        handles = [c.start(AllReduce(group, "sum"), x) for x in xs]
        order = np.random.default_rng(c.rank).permutation(4)
        results = {int(i): handles[i].wait() for i in order}
        assert all(handles[i].wait() is results[i] for i in range(4))
        return [results[i][0] for i in range(4)]

    assert session(3).run(fn) == [[3, 33, 63, 93]] * 3


@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("late", [0, 1])
def test_a_handle_that_one_rank_never_waits_for_does_not_stop_the_others(late):
    def fn(c):
        time.sleep(0.02 * (c.rank == late))
        handle = c.start(AllReduce((0, 1), "sum"), np.ones(4))
        return handle.wait().tolist() if c.rank else None

    assert session(2).run(fn) == [None, [2, 2, 2, 2]]


@pytest.mark.usefixtures("cut")
def test_a_handle_that_has_been_waited_for_holds_no_operand():
    def fn(c):
        x = np.zeros(10).view(Big)
        handle = c.start(AllReduce((0, 1), "sum"), x)
        handle.wait()
        c.barrier((0, 1))
        watch = weakref.ref(x)
        del x
        gc.collect()
        return watch() is None, handle

    assert [gone for gone, _ in session(2).run(fn)] == [True, True]


# -- messages --------------------------------------------------------------------------------------


def test_messages_keep_their_order_per_tag_and_are_copies():
    def fn(c):
        if c.rank == 0:
            x = np.zeros(3, np.float32)
            for i in range(5):
                x[:] = i
                c.send(x, 1, tag=i % 2)
            return None
        out = np.empty(3, np.float32)
        late = c.start_recv((3,), np.float32, 0, tag=1)
        even = [c.recv((3,), np.float32, 0, tag=0, out=out)[0] for _ in range(3)]
        return even, late.wait()[0], late.wait()[0], c.recv((3,), np.float32, 0, tag=1)[0]

    assert session(2).run(fn)[1] == ([0, 2, 4], 1, 1, 3)


def test_ranks_that_all_send_first_do_not_lock_up():
    def fn(c):
        c.send(np.array([c.rank]), (c.rank + 1) % c.size)
        return int(c.recv((1,), np.int64, (c.rank - 1) % c.size)[0])

    assert session(5).run(fn) == [4, 0, 1, 2, 3]


def test_a_message_of_another_shape_or_dtype_is_reported():
    def fn(c):
        if c.rank == 0:
            c.send(np.zeros(3, np.float32), 1)
        else:
            c.recv((3,), np.float64, 0)

    with pytest.raises(InternalError, match=r"device 0 sent float32\[3\].*expects float64\[3\]"):
        session(2).run(fn)


def test_a_message_that_nobody_receives_is_reported():
    with pytest.raises(InternalError, match=r"device 1 never received .* device 0 with tag 7"):
        session(2).run(lambda c: c.send(np.zeros(1), 1, 7) if c.rank == 0 else None)
    assert session(2).run(lambda c: c.rank) == [0, 1]


# -- sessions --------------------------------------------------------------------------------------


def test_the_protocol_of_transports_needs_no_numpy():
    code = "import sys, graphc.runtime.transport; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.strip() == b"False"


def test_the_transport_is_an_entry_point_and_runs_everywhere():
    (entry,) = importlib.metadata.entry_points(group="graphc.transports", name="local")
    assert entry.load() is TRANSPORT
    assert TRANSPORT.name == "local" and TRANSPORT.available() is None


def test_results_come_in_rank_order_and_threads_are_reused():
    with TRANSPORT.open(4) as s:
        first = s.run(lambda c: (c.rank, c.size, threading.get_ident()))
        assert [r[:2] for r in first] == [(i, 4) for i in range(4)]
        assert s.run(lambda c: (c.rank, c.size, threading.get_ident())) == first
        assert first[0][2] == threading.get_ident()


def test_one_device_runs_inline_without_threads():
    before = threading.active_count()
    with TRANSPORT.open(1, deadline=5) as s:
        assert s.run(lambda c: threading.get_ident()) == [threading.get_ident()]
        assert threading.active_count() == before
        x = np.arange(3.0)
        assert same(s.run(lambda c: c.all_reduce(x, "sum", (0,), "tree"))[0], x)


@pytest.mark.parametrize("deadline", [None, 60])
def test_every_rank_runs_in_the_callers_context(deadline):
    with TRANSPORT.open(3, deadline=deadline) as s, np.errstate(over="raise"):
        assert {e["over"] for e in s.run(lambda c: np.geterr())} == {"raise"}


def test_a_closed_or_busy_session_says_so():
    s = TRANSPORT.open(2)
    with pytest.raises(GraphcError, match="in the middle of another run"):
        s.run(lambda c: s.run(lambda d: None))
    s.close()
    s.close()
    with pytest.raises(GraphcError, match="session is closed") as error:
        s.run(lambda c: None)
    assert error.value.code == "G0563"


def test_a_session_that_is_dropped_ends_its_threads():
    s = TRANSPORT.open(3)
    s.run(lambda c: c.barrier((0, 1, 2)))
    threads = [t for t in threading.enumerate() if t in {w.thread for w in s._workers}]
    assert len(threads) == 2
    del s
    gc.collect()
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()


@pytest.mark.parametrize("deadline", [None, 60])
def test_two_thousand_runs_leak_neither_threads_nor_memory(deadline):
    group = (0, 1, 2)

    def fn(c):
        x = np.ones(64, np.float32)
        c.all_reduce(x, "sum", group, out=x)
        c.send(x, (c.rank + 1) % 3)
        return c.recv(x.shape, x.dtype, (c.rank - 1) % 3)

    with TRANSPORT.open(3, deadline=deadline) as s:
        for _ in range(50):
            s.run(fn)
        threads = threading.active_count()
        tracemalloc.start()
        try:
            for _ in range(100):
                s.run(fn)
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(1900):
                s.run(fn)
            gc.collect()
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert threading.active_count() == threads
        assert grown < 20_000


@pytest.mark.parametrize("fails", [False, True])
def test_an_idle_session_keeps_no_array_of_a_run_alive(fails):
    alive = []

    def fn(c):
        x = np.zeros(10).view(Big)
        alive.append(weakref.ref(x))
        c.all_reduce(x, "sum", (0, 1), out=x)
        c.start(AllReduce((0, 1), "max"), x)
        if fails and c.rank:
            raise ValueError("no")
        c.barrier((0, 1))

    with contextlib.suppress(ValueError):
        session(2).run(fn)
    gc.collect()
    assert len(alive) == 2 and all(ref() is None for ref in alive)


# -- failure ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [0, 1, 3])
@pytest.mark.parametrize("deadline", [None, 60])
def test_an_error_on_one_rank_ends_the_others_and_names_the_device(bad, deadline):
    ended = []

    def fn(c):
        try:
            c.barrier((0, 1, 2, 3))
            if c.rank == bad:
                raise ZeroDivisionError("mine")
            if c.rank == (bad + 1) % 4:
                c.recv((1,), np.float32, bad)
            elif c.rank == (bad + 2) % 4:
                time.sleep(0.02)
                c.send(np.zeros(1), 0)  # enters when the other has failed already
            else:
                c.all_reduce(np.zeros(3), "sum", (0, 1, 2, 3))
        except PeerFailed:
            ended.append(c.rank)
            raise

    with TRANSPORT.open(4, deadline=deadline) as s:
        start = time.monotonic()
        with pytest.raises(ZeroDivisionError, match="mine") as error:
            s.run(fn)
        assert time.monotonic() - start < 5
        assert error.value.__notes__ == [f"on device {bad}"]
        assert sorted(ended) == [r for r in range(4) if r != bad]
        assert s.run(lambda c: int(c.all_reduce(np.array(1), "sum", (0, 1, 2, 3)))) == [4] * 4


def test_a_graphc_error_comes_through_as_it_is():
    mine = GraphcError("G0203", "shapes")

    def fn(c):
        if c.rank == 1:
            raise mine
        c.barrier((0, 1))

    with pytest.raises(GraphcError) as error:
        session(2).run(fn)
    assert error.value is mine
    assert not getattr(mine, "__notes__", None)


def test_of_several_errors_the_lowest_rank_is_raised():
    def fn(c):
        if c.rank:
            raise ValueError(c.rank)

    with pytest.raises(ValueError, match="1") as error:
        session(4).run(fn)
    assert error.value.__notes__ == ["on device 1"]


def test_code_that_handles_exceptions_does_not_swallow_the_end():
    def fn(c):
        if c.rank == 0:
            raise KeyError("first")
        for _ in range(1000):
            try:
                c.barrier((0, 1))
            except Exception:
                continue

    with pytest.raises(KeyError, match="first"):
        session(2).run(fn)


@pytest.mark.usefixtures("cut")
def test_an_error_inside_an_exchange_ends_all():
    x = np.full(1000, 3e38, np.float32)
    with np.errstate(over="raise"), pytest.raises(FloatingPointError, match="overflow"):
        session(3).run(lambda c: c.all_reduce(x, "sum", (0, 1, 2)))
    assert session(3).run(lambda c: c.rank) == [0, 1, 2]


@pytest.mark.parametrize("deadline", [None, 60])
@pytest.mark.parametrize("busy", [False, True])
def test_ctrl_c_ends_all_ranks_and_is_raised(deadline, busy):
    """The main thread is in a collective, or in its own work, when the interrupt comes."""

    def fn(c):
        if c.rank == 2:
            time.sleep(0.05)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        if c.rank == 0 and busy:
            for _ in range(100):
                time.sleep(0.01)
        c.recv((1,), np.float32, (c.rank + 1) % 3) if c.rank != 2 else keep_running(c)

    def keep_running(c):
        while True:
            time.sleep(0.001)
            c.barrier((2,))

    with TRANSPORT.open(3, deadline=deadline) as s:
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            s.run(fn)
        assert time.monotonic() - start < 5
        assert s.run(lambda c: c.rank) == [0, 1, 2]


# -- mismatch --------------------------------------------------------------------------------------

G = (0, 1, 2)
MISMATCHES = {
    "op": lambda c, x: c.all_reduce(x, "max" if c.rank == 1 else "sum", G),
    "order": lambda c, x: c.all_reduce(x, "sum", G, "tree" if c.rank == 1 else "engine"),
    "shape": lambda c, x: c.all_reduce(x[: 3 if c.rank == 1 else 4], "sum", G),
    "dtype": lambda c, x: c.all_reduce(x.astype("f4" if c.rank == 1 else "f8"), "sum", G),
    "kind": lambda c, x: c.barrier(G) if c.rank == 1 else c.broadcast(x, 0, G),
    "root": lambda c, x: c.broadcast(x, c.rank // 2, G),
    "lengths": lambda c, x: c.all_gather(x, G, 0, (4, 4, 4 - c.rank // 2), 12),
    "total": lambda c, x: c.all_gather(x, G, 0, (4, 4, 4), 12 + c.rank),
}


@pytest.mark.parametrize("case", MISMATCHES)
def test_calls_that_differ_are_reported_with_both_calls(case):
    with pytest.raises(
        InternalError, match=r"disagree: devices? \d.* called .*device \d called"
    ) as e:
        session(3).run(lambda c: MISMATCHES[case](c, np.zeros(4)))
    assert e.value.code == "G0561"
    assert session(3).run(lambda c: c.rank) == [0, 1, 2]


def test_calls_on_different_groups_are_seen_as_a_deadlock():
    with pytest.raises(
        InternalError, match=r"wait for each other: device 0 waits in .*; device 1 "
    ):
        session(3).run(lambda c: c.barrier((0, 1) if c.rank == 0 else G))


def test_a_rank_that_ends_before_its_call_is_reported():
    with pytest.raises(InternalError, match=r"device 0 waits in .*all_reduce of w1.*1 has ended"):
        session(2).run(
            lambda c: (
                c.rank
                or c.start(AllReduce((0, 1), "sum", where="all_reduce of w1"), np.ones(2)).wait()
            )
        )


def test_a_call_that_is_started_by_some_only_is_reported():
    call = AllGather((0, 1), 0, (2, 2), 4)
    with pytest.raises(InternalError, match=r"device 1 never came to AllGather\(group=\(0, 1\)"):
        session(2).run(lambda c: c.rank or (c.start(call, np.ones(2)) and None))


def test_two_ranks_that_wait_for_each_others_message_are_reported():
    with pytest.raises(
        InternalError, match="device 0 waits for a message from device 1 with tag 3"
    ):
        session(2).run(lambda c: c.recv((1,), np.float32, 1 - c.rank, tag=3))


def test_a_report_stays_short_for_many_devices():
    with TRANSPORT.open(40) as s, pytest.raises(InternalError) as error:
        s.run(lambda c: c.barrier((0, 1)) if c.rank == 0 else None)
    assert len(error.value.message) < 1500 and error.value.message.endswith("...")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.barrier((0, 0)), "names a device twice"),
        (lambda c: c.all_gather(np.zeros(2), (0, 1), 0, (2, 3), 9), "do not fit shards of 2"),
        (lambda c: c.all_gather(np.zeros(2), (0, 1), 0, (2, 2), 3), "a whole of 3"),
        (lambda c: c.all_gather(np.zeros(2), (0, 1), 0, (2,), 4), "lengths"),
        (lambda c: c.reduce_scatter(np.zeros(3), "sum", (0, 1), 0, (2, 1), 1), "shards of 1"),
        (lambda c: c.broadcast(np.zeros(3), 5, (0, 1)), "outside the group"),
        (lambda c: c.all_reduce(np.zeros(3), "sum", (0, 1), out=np.zeros(4)), "out is float64"),
        (lambda c: c.send(np.zeros(3), 2), "to device 2 of 2"),
    ],
)
def test_a_call_that_does_not_fit_its_arrays_is_refused(call, message):
    with pytest.raises(AssertionError, match=message):
        session(2).run(call)


# -- deadline --------------------------------------------------------------------------------------


@pytest.mark.parametrize("absent", [0, 2])
def test_a_rank_that_is_late_is_named_with_the_call(absent):
    def fn(c):
        c.barrier((0, 1, 2))
        if c.rank == absent:
            time.sleep(0.75)
        c.start(AllReduce((0, 1, 2), "sum", where="%dw1 model.gc:8"), np.zeros((2, 3))).wait()

    with TRANSPORT.open(3, deadline=0.5) as s:
        with pytest.raises(GraphcError) as error:
            s.run(fn)
        assert error.value.code == "G0562"
        assert f"device {absent} did not come to AllReduce" in error.value.message
        assert "%dw1 model.gc:8 of float64[2, 3] within 0.5 s" in error.value.message
        help = error.value.help
        assert f"device {absent} is at work, its last call was Barrier" in help
        assert s.run(lambda c: c.rank) == [0, 1, 2]  # the late one came back in time to go on


def test_a_message_that_is_late_names_the_sender():
    def fn(c):
        if c.rank == 1:
            time.sleep(0.3)
        else:
            c.recv((2,), np.float32, 1, tag=4)

    with TRANSPORT.open(2, deadline=0.2) as s, pytest.raises(GraphcError) as error:
        s.run(fn)
    assert "device 1 did not come to its send to device 0 with tag 4" in error.value.message


def test_a_rank_that_never_comes_back_is_given_up_and_the_session_with_it():
    release = threading.Event()

    def fn(c):
        if c.rank == 0:
            release.wait(30)
        c.barrier((0, 1))

    s = TRANSPORT.open(2, deadline=0.1)
    try:
        start = time.monotonic()
        with pytest.raises(GraphcError, match="device 0 did not come to Barrier"):
            s.run(fn)
        assert time.monotonic() - start < 5
        with pytest.raises(GraphcError, match="missing a device that did not come back"):
            s.run(fn)
        s.close()
    finally:
        release.set()
    for worker in s._workers:
        worker.thread.join(5)
        assert not worker.thread.is_alive()


def test_a_wake_that_comes_with_the_deadline_is_not_left_for_the_next_sleep():
    room = rendezvous.Room(2, deadline=1.0)
    room.gates[0].release()  # woken: waiting[0] is None again, and the gate is open
    room._late(0, (1, 0, 0))
    assert not room.gates[0].acquire(blocking=False)


def test_an_error_that_a_rank_catches_still_ends_the_run():
    def fn(c):
        try:
            c.barrier((0, 1) if c.rank else (1, 0))
        except GraphcError:
            c.barrier((c.rank,))

    with pytest.raises(InternalError, match="wait for each other"):
        session(2).run(fn)


def test_a_deadline_does_not_disturb_work_that_is_in_time():
    with TRANSPORT.open(3, deadline=5) as s:
        for _ in range(3):
            s.run(lambda c: (time.sleep(0.05 * c.rank), c.barrier((0, 1, 2))))


@pytest.mark.parametrize("size", [2, 4])
def test_a_slow_exchange_of_big_arrays_is_right(size):
    group = tuple(range(size))
    xs = [np.full(BIG * 10, 2.0**r, np.float32) for r in group]
    for y in session(size).run(lambda c: c.all_reduce(xs[c.rank], "sum", group)):
        assert (y == 2.0**size - 1).all()
