"""The local transport: calls that differ, deadlocks and deadlines are reported, never a hang."""

import threading
import time
from contextlib import ExitStack
from functools import lru_cache

import numpy as np
import pytest
from runtime import calls

from graphc.ir.collectives import Collective
from graphc.ir.orders import Order
from graphc.ir.placement import R
from graphc.runtime.transports import rendezvous
from graphc.runtime.transports.local import TRANSPORT
from graphc.runtime.transports.transport import CollectiveCall
from graphc.support.errors import GraphcError, InternalError

# -- mismatch --------------------------------------------------------------------------------------

G = (0, 1, 2)
MISMATCHES = {
    "op": lambda c, x: calls.all_reduce(c, x, "max" if c.rank == 1 else "sum", G),
    "order": lambda c, x: calls.all_reduce(
        c, x, "sum", G, Order.TREE if c.rank == 1 else Order.ADD_N
    ),
    "shape": lambda c, x: calls.all_reduce(c, x[: 3 if c.rank == 1 else 4], "sum", G),
    "dtype": lambda c, x: calls.all_reduce(c, x.astype("f4" if c.rank == 1 else "f8"), "sum", G),
    "kind": lambda c, x: c.barrier(G) if c.rank == 1 else calls.broadcast(c, x, 0, G),
    "root": lambda c, x: calls.broadcast(c, x, c.rank // 2, G),
    "lengths": lambda c, x: calls.all_gather(c, x, G, 0, (4, 4, 4 - c.rank // 2), 12),
    "total": lambda c, x: calls.all_gather(c, x, G, 0, (4, 4, 4), 12 + c.rank),
}


@pytest.fixture(scope="module")
def session():
    """session(n) is an open session of n devices in this process, whose calls are compared."""
    with ExitStack() as stack:
        yield lru_cache(lambda size: stack.enter_context(TRANSPORT.open(size)))


@pytest.mark.parametrize("case", MISMATCHES)
def test_calls_that_differ_are_reported_with_both_calls(case, session):
    with pytest.raises(
        InternalError, match=r"disagree: devices? \d.* called .*device \d called"
    ) as e:
        session(3).run(lambda c: MISMATCHES[case](c, np.zeros(4)))
    assert e.value.code == "G0561"
    assert session(3).run(lambda c: c.rank) == [0, 1, 2]


def test_calls_on_different_groups_are_seen_as_a_deadlock(session):
    with pytest.raises(
        InternalError, match=r"wait for each other: device 0 waits in .*; device 1 "
    ):
        session(3).run(lambda c: c.barrier((0, 1) if c.rank == 0 else G))


def test_a_rank_that_ends_before_its_call_is_reported(session):
    with pytest.raises(InternalError, match=r"device 0 waits in .*all_reduce of w1.*1 has ended"):
        session(2).run(
            lambda c: (
                c.rank
                or c.start(calls.sum_of((0, 1), "sum", where="all_reduce of w1"), np.ones(2)).wait()
            )
        )


def test_a_call_that_is_started_by_some_only_is_reported(session):
    call = calls.gather_of((0, 1), 0, (2, 2), 4)
    with pytest.raises(
        InternalError, match=r"device 1 never reached all_gather S\(0\) -> R among \(0, 1\)"
    ):
        session(2).run(lambda c: c.rank or (c.start(call, np.ones(2)) and None))


def test_a_report_stays_short_for_many_devices():
    with TRANSPORT.open(40) as s, pytest.raises(InternalError) as error:
        s.run(lambda c: c.barrier((0, 1)) if c.rank == 0 else None)
    assert len(error.value.message) < 1500 and error.value.message.endswith("...")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.barrier((0, 0)), "names a device twice"),
        (
            lambda c: calls.all_gather(c, np.zeros(2), (0, 1), 0, (2, 3), 9),
            "do not fit shards of 2",
        ),
        (lambda c: calls.all_gather(c, np.zeros(2), (0, 1), 0, (2, 2), 3), "a whole of 3"),
        (lambda c: calls.all_gather(c, np.zeros(2), (0, 1), 0, (2,), 4), "parts"),
        (
            lambda c: calls.reduce_scatter(c, np.zeros(3), "sum", (0, 1), 0, (2, 1), 1),
            "shards of 1",
        ),
        (lambda c: calls.broadcast(c, np.zeros(3), 5, (0, 1)), "outside the group"),
        (
            lambda c: calls.all_reduce(c, np.zeros(3), "sum", (0, 1), out=np.zeros(4)),
            "out is float64",
        ),
    ],
)
def test_a_call_that_does_not_fit_its_arrays_is_refused(call, message, session):
    with pytest.raises(AssertionError, match=message):
        session(2).run(call)


# -- deadline --------------------------------------------------------------------------------------


@pytest.mark.parametrize("absent", [0, 2])
def test_a_rank_that_is_late_is_named_with_the_call(absent):
    told = threading.Event()

    def fn(c):
        c.barrier((0, 1, 2))
        if c.rank == absent:
            told.wait()
        try:
            c.start(
                calls.sum_of((0, 1, 2), "sum", where="%dw1 model.gc:8"), np.zeros((2, 3))
            ).wait()
        finally:
            told.set()

    with TRANSPORT.open(3, deadline=2) as s:
        with pytest.raises(GraphcError) as error:
            s.run(fn)
        assert error.value.code == "G0562"
        assert f"device {absent} did not reach all_reduce" in error.value.message
        assert "%dw1 model.gc:8 of float64[2, 3] within 2 s" in error.value.message
        help = error.value.help
        assert f"device {absent} is computing; its last call was barrier" in help
        assert s.run(lambda c: c.rank) == [0, 1, 2]  # the late one came back in time to go on


def test_a_rank_that_never_comes_back_is_given_up_and_the_session_with_it():
    release = threading.Event()

    def fn(c):
        if c.rank == 0:
            release.wait()
        c.barrier((0, 1))

    s = TRANSPORT.open(2, deadline=0.1)
    try:
        with pytest.raises(GraphcError, match="device 0 did not reach barrier"):
            s.run(fn)
        with pytest.raises(GraphcError, match="missing a device that did not return"):
            s.run(fn)
        s.close()
    finally:
        release.set()
    for worker in s._workers:
        worker.thread.join(300)
        assert not worker.thread.is_alive()


def test_a_wake_that_comes_with_the_deadline_is_not_left_for_the_next_sleep():
    room = rendezvous.Room(2, deadline=1.0)
    room.gates[0].release()  # woken: waiting[0] is None again, and the gate is open
    barrier = CollectiveCall(Collective(R, R), (0, 1))
    room._late(0, rendezvous.Meeting(barrier, np.zeros(0), range(2)))
    assert not room.gates[0].acquire(blocking=False)


def test_an_error_that_a_rank_catches_still_ends_the_run(session):
    def fn(c):
        try:
            c.barrier((0, 1) if c.rank else (1, 0))
        except GraphcError:
            c.barrier((c.rank,))

    with pytest.raises(InternalError, match="wait for each other"):
        session(2).run(fn)


def test_a_deadline_does_not_disturb_work_that_is_in_time():
    with TRANSPORT.open(3, deadline=600) as s:
        for _ in range(3):
            s.run(lambda c: (time.sleep(0.05 * c.rank), c.barrier((0, 1, 2))))
