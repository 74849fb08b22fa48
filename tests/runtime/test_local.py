"""The local transport: messages, sessions, failure, interrupts, no leaks."""

import contextlib
import gc
import importlib.metadata
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
import weakref

import numpy as np
import pytest
from runtime import calls
from shares import every

from graphc.ir.orders import Order
from graphc.runtime.transports.local import TRANSPORT
from graphc.runtime.transports.transport import PeerFailed
from graphc.support.errors import GraphcError

DEADLINE = 10**6  # seconds: a rank that waits for it hangs, and one that is only slow is in time


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


# -- sessions --------------------------------------------------------------------------------------


def test_the_protocol_of_transports_needs_no_numpy():
    code = "import sys, graphc.runtime.transports.transport; print('numpy' in sys.modules)"
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
    with TRANSPORT.open(1, deadline=DEADLINE) as s:
        assert s.run(lambda c: threading.get_ident()) == [threading.get_ident()]
        assert threading.active_count() == before
        x = np.arange(3.0)
        assert same(s.run(lambda c: calls.all_reduce(c, x, "sum", (0,), Order.TREE))[0], x)


@pytest.mark.parametrize("deadline", [None, DEADLINE])
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
        thread.join(300)
        assert not thread.is_alive()


@pytest.mark.parametrize("deadline", every(2, [None, DEADLINE]))
def test_two_thousand_runs_leak_neither_threads_nor_memory(deadline):
    group = (0, 1, 2)

    def fn(c):
        x = np.ones(64, np.float32)
        return calls.all_reduce(c, x, "sum", group, out=x)

    with TRANSPORT.open(3, deadline=deadline) as s:
        for _ in range(50):
            s.run(fn)
        gc.collect()  # of what other tests have dropped, threads end
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
        assert threading.active_count() <= threads
        assert grown < 20_000


@pytest.mark.parametrize("fails", [False, True])
def test_an_idle_session_keeps_no_array_of_a_run_alive(fails, session):
    alive = []

    def fn(c):
        x = np.zeros(10)
        alive.append(weakref.ref(x))
        calls.all_reduce(c, x, "sum", (0, 1), out=x)
        c.start(calls.sum_of((0, 1), "max"), x)
        if fails and c.rank:
            raise ValueError("no")
        c.barrier((0, 1))

    with contextlib.suppress(ValueError):
        session(2).run(fn)
    gc.collect()
    assert len(alive) == 2 and all(ref() is None for ref in alive)


# -- failure ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [0, 1, 3])
@pytest.mark.parametrize("deadline", [None, DEADLINE])
def test_an_error_on_one_rank_ends_the_others_and_names_the_device(bad, deadline):
    ended = []

    def fn(c):
        try:
            c.barrier((0, 1, 2, 3))
            if c.rank == bad:
                raise ZeroDivisionError("mine")
            if c.rank == (bad + 1) % 4:
                c.barrier(tuple(sorted((c.rank, bad))))
            elif c.rank == (bad + 2) % 4:
                time.sleep(0.02)
                c.barrier((c.rank,))  # enters when the other has failed already
            else:
                calls.all_reduce(c, np.zeros(3), "sum", (0, 1, 2, 3))
        except PeerFailed:
            ended.append(c.rank)
            raise

    with TRANSPORT.open(4, deadline=deadline) as s:
        with pytest.raises(ZeroDivisionError, match="mine") as error:
            s.run(fn)
        assert error.value.__notes__ == [f"on device {bad}"]
        assert sorted(ended) == [r for r in range(4) if r != bad]
        assert (
            s.run(lambda c: int(calls.all_reduce(c, np.array(1), "sum", (0, 1, 2, 3)))) == [4] * 4
        )


def test_a_graphc_error_comes_through_as_it_is(session):
    mine = GraphcError("G0203", "shapes")

    def fn(c):
        if c.rank == 1:
            raise mine
        c.barrier((0, 1))

    with pytest.raises(GraphcError) as error:
        session(2).run(fn)
    assert error.value is mine
    assert not getattr(mine, "__notes__", None)


def test_of_several_errors_the_lowest_rank_is_raised(session):
    def fn(c):
        if c.rank:
            raise ValueError(c.rank)

    with pytest.raises(ValueError, match="1") as error:
        session(4).run(fn)
    assert error.value.__notes__ == ["on device 1"]


def test_code_that_handles_exceptions_does_not_swallow_the_end(session):
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
def test_an_error_inside_an_exchange_ends_all(session):
    x = np.full(1000, 3e38, np.float32)
    with np.errstate(over="raise"), pytest.raises(FloatingPointError, match="overflow"):
        session(3).run(lambda c: calls.all_reduce(c, x, "sum", (0, 1, 2)))
    assert session(3).run(lambda c: c.rank) == [0, 1, 2]


@pytest.mark.parametrize("deadline", [None, DEADLINE])
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
        c.barrier((0, 1, 2)) if c.rank != 2 else keep_running(c)

    def keep_running(c):
        while True:
            time.sleep(0.001)
            c.barrier((2,))

    with TRANSPORT.open(3, deadline=deadline) as s:
        with pytest.raises(KeyboardInterrupt):
            s.run(fn)
        assert s.run(lambda c: c.rank) == [0, 1, 2]
