"""The roles as threads: nothing is lost or done twice, errors surface, nothing hangs."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import pytest
from counters import Counter, compute, counters

from graphc.runtime.asynchronous.coordinator import Coordinator, RecordedPush
from graphc.runtime.asynchronous.drivers import Conductor, Ended, RoleLost
from graphc.runtime.asynchronous.messages import (
    ApplyPush,
    Letters,
    Message,
    PulledVariables,
    Staged,
    WorkItem,
)
from graphc.runtime.asynchronous.server import Server
from graphc.runtime.asynchronous.threads import Threads
from graphc.runtime.asynchronous.worker import Compute, Worker
from graphc.support.errors import GraphcError

Hire: TypeAlias = Callable[[str], Compute]  # what the worker of a name computes with


def hire(name: str) -> Compute:
    return compute


def run(
    workers: int, staleness: int | None, batches: int, hire: Hire = hire,
    stores: list[Counter] | None = None,
) -> list[RecordedPush]:  # fmt: skip
    entries: list[RecordedPush] = []
    stores = stores or counters(2)
    coordinator = Coordinator(
        names(stores), staleness, lambda i: i < batches, lambda e, results: entries.append(e)
    )
    try:
        conducted(coordinator, stores, hire, workers).run()
    finally:
        roles = [
            t.name for t in threading.enumerate() if t.name.startswith(("graphc-w", "graphc-s"))
        ]
        assert not roles, "a thread goes on"
    return entries


def names(stores: list[Counter]) -> tuple[str, ...]:
    return tuple(f"server.{i}" for i in range(len(stores)))


def conducted(
    coordinator: Coordinator, stores: list[Counter], hire: Hire, workers: int, **options: Any
) -> Conductor:
    of = dict(zip(coordinator.servers, stores, strict=True))
    driver = Threads(
        lambda name: Server(name, of[name]),
        lambda name: Worker(name, coordinator.servers, hire(name)),
    )
    return Conductor(coordinator, driver, workers, **options)


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("staleness", [None, 0, 1, 4])
def test_every_batch_is_applied_once_on_all_servers(workers: int, staleness: int | None) -> None:
    stores = counters(3)
    entries = run(workers, staleness, 60, stores=stores)
    order = [e.batch for e in entries]
    assert sorted(order) == list(range(60))
    assert all(s.applied == order for s in stores)
    assert staleness is None or max(e.staleness for e in entries) <= staleness


def test_a_run_without_batches_ends_at_once() -> None:
    assert run(3, 1, 0) == []


@pytest.mark.parametrize("servers", [1, 3])
def test_settled_servers_have_applied_the_same_pushes(servers: int) -> None:
    stores = [_Slow(f"v{i}") for i in range(servers)]
    told: list[int] = []

    def on_entry(entry: RecordedPush, results: Mapping[str, Any]) -> None:
        with conductor.driver.settled():
            assert [store.applied for store in stores] == [told[: len(stores[0].applied)]] * servers
            seen = [*stores[0].applied]
            time.sleep(0.001)
            assert all(store.applied == seen for store in stores), "one is applied meanwhile"
        told.append(entry.batch)

    coordinator = Coordinator(names([*stores]), 4, lambda i: i < 40, on_entry)
    conductor = conducted(coordinator, [*stores], hire, 3)
    conductor.run()
    assert sorted(told) == list(range(40)) and all(store.applied == told for store in stores)


class _Slow(Counter):
    def apply(self, values: Mapping[str, Any]) -> None:
        time.sleep(0.002)
        super().apply(values)


class Dying:
    """Computes, and is lost at the given batches, once each."""

    def __init__(self, *batches: int) -> None:
        self.left, self.lock = set(batches), threading.Lock()

    def __call__(self, name: str) -> Compute:
        def dying(batch: int, values: Mapping[str, Any]) -> Any:
            with self.lock:
                dies = batch in self.left
                self.left.discard(batch)
            if dies:
                raise RoleLost("the machine is gone")
            return compute(batch, values)

        return dying


@pytest.mark.parametrize("staleness", [None, 0, 2])
def test_the_batch_of_a_lost_worker_is_given_to_another(staleness: int | None) -> None:
    stores = counters(2)
    entries = run(3, staleness, 40, Dying(0, 7, 8, 39), stores)
    assert sorted(e.batch for e in entries) == list(range(40))
    assert all(sorted(s.applied) == list(range(40)) for s in stores)


def test_a_new_worker_takes_the_place_of_a_lost_one() -> None:
    entries = run(1, None, 20, Dying(0, 7), counters(2))
    assert [e.worker for e in entries] == ["worker.1"] * 7 + ["worker.2"] * 13


def test_workers_that_are_lost_again_and_again_end_the_run() -> None:
    def always(name: str) -> Compute:
        def lost(batch: int, values: Mapping[str, Any]) -> Any:
            raise RoleLost("no such device")

        return lost

    with pytest.raises(GraphcError, match=r"failed without an update.*no such device") as caught:
        run(2, 1, 10, always)
    assert caught.value.code == "G0526"


def test_an_error_of_a_step_surfaces_when_the_others_have_finished() -> None:
    def failing(name: str) -> Compute:
        def fails(batch: int, values: Mapping[str, Any]) -> Any:
            if batch == 5:
                raise ValueError("a step that fails")
            return compute(batch, values)

        return fails

    stores = counters(2)
    with pytest.raises(ValueError, match="a step that fails"):
        run(3, 2, 1000, failing, stores)
    assert stores[0].applied == stores[1].applied
    assert 5 not in stores[0].applied
    assert len(stores[0].applied) < 1000


def test_an_error_of_a_server_ends_the_run() -> None:
    class Broken(Counter):
        def apply(self, values: Mapping[str, Any]) -> None:
            if values["batch"] == 4:
                raise GraphcError("G0524", "server.1 failed")
            super().apply(values)

    with pytest.raises(GraphcError, match=r"server\.1 failed"):
        run(3, 2, 100, stores=[Counter("v0"), Broken("v1")])


def test_a_stop_finishes_what_is_under_way() -> None:
    entries: list[RecordedPush] = []
    stores = counters(2)
    coordinator = Coordinator(names(stores), None, lambda i: True, lambda e, r: entries.append(e))
    conducted(coordinator, stores, hire, 3, interrupt=lambda: len(entries) > 20).run()
    order = [e.batch for e in entries]
    assert sorted(order) == list(range(len(order)))
    assert all(s.applied == order for s in stores)


def test_a_slow_worker_reaches_the_bound_and_keeps_to_it() -> None:
    """Its first push comes when each of the others has made one from the same version."""
    stores, pulled = counters(2), threading.Event()

    def uneven(name: str) -> Compute:
        def waits(batch: int, values: Mapping[str, Any]) -> Any:
            if name == "worker.0":
                pulled.set()
                while len(stores[0].applied) < 3:
                    time.sleep(0.0005)
            pulled.wait()
            return compute(batch, values)

        return waits

    ages = [e.staleness for e in run(4, 3, 120, uneven, stores)]
    assert max(ages) == 3


@pytest.mark.parametrize("staleness", [None, 64])
def test_a_slow_worker_does_not_keep_the_others_waiting(staleness: int | None) -> None:
    """One worker is as slow as can be: it ends a step when the others have made all but a few."""
    done: list[int] = []
    most = threading.Event()

    def uneven(name: str) -> Compute:
        def waits(batch: int, values: Mapping[str, Any]) -> Any:
            if name == "worker.0":
                most.wait()
            done.append(batch)
            if len(done) >= 40:
                most.set()
            return compute(batch, values)

        return waits

    run(4, staleness, 45, uneven)
    assert sorted(done) == list(range(45))


def test_a_server_runs_one_message_at_a_time_whoever_sends_them() -> None:
    seen: list[tuple[int, int]] = []
    inside, twice = threading.Lock(), []

    class Noting(Server):
        def on_message(self, message: Message) -> Letters:
            if not inside.acquire(blocking=False):
                twice.append(message)
            assert isinstance(message, Staged)
            time.sleep(0.0002 if message.number % 7 == 0 else 0)
            seen.append((int(message.server), message.number))
            inside.release()
            return []

    driver = Threads(lambda name: Noting(name, Counter(name)), lambda name: hired(name))
    driver.start_server("s", 0)

    def sender(k: int) -> None:
        for number in range(200):
            driver.send([("s", Staged(str(k), number))])

    threads = [threading.Thread(target=sender, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not twice
    assert sorted(seen) == [(k, n) for k in range(4) for n in range(200)]
    for k in range(4):
        assert [n for sender, n in seen if sender == k] == list(range(200))
    assert not driver.threads  # a server has none


def test_nobody_has_pulled_variables_when_the_next_ones_are_pulled() -> None:
    """So their memory is that of the next ones, and may still be in a cache."""

    class Arrays(Counter):
        def read(self) -> Mapping[str, Any]:
            return {self.name: np.full(3, self.value)}

    def gradient(batch: int, values: Mapping[str, Any]) -> Any:
        return [{"batch": batch, "move": float(values["v"].sum())}], {}

    server, worker = Server("s", Arrays("v")), Worker("w", ("s",), gradient)
    worker.start()
    ((_, pull),) = worker.on_message(WorkItem(1, 0, 0))
    ((_, pulled),) = server.on_message(pull)
    assert isinstance(pulled, PulledVariables)
    seen = weakref.ref(pulled.values["v"])
    ((_, push),) = worker.on_message(pulled)
    del pulled
    assert seen() is not None  # another worker might pull the same ones
    server.on_message(push)
    server.on_message(ApplyPush(0, "w", 1))
    assert seen() is None


def test_a_message_is_done_by_the_thread_that_sent_it() -> None:
    """A worker that has its variables computes, and does not first apply the pushes of others."""
    begun, sent, done_by = threading.Event(), threading.Event(), dict[int, str]()

    class Slow(Server):
        def on_message(self, message: Message) -> Letters:
            assert isinstance(message, Staged)
            begun.set()
            if message.number == 0:
                assert sent.wait(60)
                time.sleep(0.05)  # until the other one is inside of `send`
            done_by[message.number] = threading.current_thread().name
            return []

    driver = Threads(lambda name: Slow(name, Counter(name)), lambda name: hired(name))
    driver.start_server("s", 0)
    first = threading.Thread(target=lambda: driver.send([("s", Staged("s", 0))]), name="first")

    def then() -> None:
        begun.wait(60)
        sent.set()
        driver.send([("s", Staged("s", 1))])

    second = threading.Thread(target=then, name="second")
    for thread in (first, second):
        thread.start()
    for thread in (first, second):
        thread.join()
    assert done_by == {0: "first", 1: "second"}


def test_a_server_that_failed_drops_what_waited_for_it() -> None:
    inside, waits, seen = threading.Event(), threading.Event(), list[int]()

    class Failing(Server):
        def on_message(self, message: Message) -> Letters:
            assert isinstance(message, Staged)
            seen.append(message.number)
            inside.set()
            assert waits.wait(60)
            time.sleep(0.05)
            raise ValueError("no memory")

    driver = Threads(lambda name: Failing(name, Counter(name)), lambda name: hired(name))
    driver.start_server("s", 0)
    first = threading.Thread(target=lambda: driver.send([("s", Staged("s", 0))]))
    first.start()
    assert inside.wait(60)
    waits.set()
    driver.send([("s", Staged("s", 1))])
    first.join()
    assert seen == [0]
    assert isinstance(driver.next(), Ended)
    assert driver.next() is None


def hired(name: str) -> Worker:
    raise AssertionError(name)


def test_a_server_that_cannot_start_or_fails_is_told_to_the_coordinator_only() -> None:
    def broken(name: str) -> Server:
        if name == "first":
            raise ValueError("no memory")
        return Server(name, Counter(name))

    driver = Threads(broken, hired)
    for name in ("first", "second"):
        driver.start_server(name, 0)
        driver.send([(name, Staged(name, 1))])  # a server takes no such message
        driver.send([(name, Staged(name, 2))])  # it has ended: this is dropped
        ended = driver.next()
        assert isinstance(ended, Ended)
        assert ended.role == name
        assert driver.next() is None
