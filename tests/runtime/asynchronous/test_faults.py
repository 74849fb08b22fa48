"""The simulator notices faults: each is planted in a role, as a careless edit would, and caught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import simulated_network
from simulations import check

from graphc.runtime.asynchronous.coordinator import Coordinator, RecordedPush
from graphc.runtime.asynchronous.messages import ApplyPush, PulledVariables, Snapshot
from graphc.runtime.asynchronous.server import Server
from graphc.runtime.asynchronous.worker import Worker
from graphc.support.errors import GraphcError

Patch = pytest.MonkeyPatch
SEEDS = 3000


def around(patch: Patch, owner: Any, name: str, change: Callable[..., Any]) -> None:
    old = getattr(owner, name)
    patch.setattr(owner, name, lambda *args: change(old, *args))


def no_bound(patch: Patch) -> None:
    patch.setattr(Coordinator, "_feasible", lambda self, version, given: True)


def one_too_many_under_way(patch: Patch) -> None:
    patch.setattr(Coordinator, "_may_start", lambda self: self._more() and (
        self.staleness is None or len(self.pieces) <= self.staleness + 1))  # fmt: skip


def a_lost_batch_is_forgotten(patch: Patch) -> None:
    def lost(old: Any, self: Coordinator, worker: str) -> Any:
        letters = old(self, worker)
        self.returned.clear()
        return letters

    around(patch, Coordinator, "_lost", lost)


def a_batch_is_given_again_though_its_push_is_there(patch: Patch) -> None:
    def lost(old: Any, self: Coordinator, worker: str) -> Any:
        piece = self.pieces.get(worker)
        if piece is not None and piece.done is not None:
            self.returned.append(piece.work.batch)
        return old(self, worker)

    around(patch, Coordinator, "_lost", lost)


def a_second_order_for_a_push_that_comes_twice(patch: Patch) -> None:
    def done(old: Any, self: Coordinator, worker: str, message: Any) -> Any:
        if worker not in self.pieces and worker not in self.lost:
            self.on_entry(RecordedPush(self.version, worker, message.number, message.batch,
                                message.versions), message.results)  # fmt: skip
        return old(self, worker, message)

    around(patch, Coordinator, "_done", done)


def apply_is_not_sent_again(patch: Patch) -> None:
    patch.setattr(Coordinator, "on_timer", lambda self: [])


def a_worker_does_not_ask_again(patch: Patch) -> None:
    patch.setattr(simulated_network.Simulation, "_remind", lambda self: None)


def a_server_applies_in_the_order_of_arrival(patch: Patch) -> None:
    def message(old: Any, self: Server, message: Any) -> Any:
        if isinstance(message, ApplyPush) and (message.worker, message.number) in self.staged:
            message = replace(message, order=self.version)
        return old(self, message)

    around(patch, Server, "on_message", message)


def a_server_applies_again_what_comes_again(patch: Patch) -> None:
    def message(old: Any, self: Server, message: Any) -> Any:
        if isinstance(message, ApplyPush) and message.order < self.version:
            self.store.apply({"batch": 0, "move": 0})
        return old(self, message)

    around(patch, Server, "on_message", message)


def a_server_does_not_wait_for_the_version(patch: Patch) -> None:
    around(patch, Server, "_pull", lambda old, self, pull: old(self, replace(pull, version=0)))


def a_server_says_that_it_is_newer_than_it_is(patch: Patch) -> None:
    def pull(old: Any, self: Server, pull: Any) -> Any:
        return [(to, replace(m, values={k: x + 1 for k, x in m.values.items()}))
                if isinstance(m, PulledVariables) and self.version % 5 == 4 else (to, m)
                for to, m in old(self, pull)]  # fmt: skip

    around(patch, Server, "_pull", pull)


def a_worker_takes_any_answer(patch: Patch) -> None:
    def message(old: Any, self: Worker, message: Any) -> Any:
        if isinstance(message, PulledVariables) and self.work is not None:
            message = replace(message, number=self.number)
        return old(self, message)

    around(patch, Worker, "on_message", message)


def a_server_does_not_write_what_it_stages(patch: Patch) -> None:
    old = Server._write
    patch.setattr(Server, "_write", lambda self, record: (
        old(self, record) if isinstance(record, ApplyPush) else None))  # fmt: skip


def a_server_does_not_write_what_it_applies(patch: Patch) -> None:
    old = Server._write
    patch.setattr(Server, "_write", lambda self, record: (
        None if isinstance(record, ApplyPush) else old(self, record)))  # fmt: skip


def a_server_forgets_who_has_pushed(patch: Patch) -> None:
    around(patch, Server, "state", lambda old, self: replace(old(self), applied={}))


def a_server_keeps_its_state_and_drops_later_records(patch: Patch) -> None:
    def read(old: Any, self: Any) -> Any:
        return None if old(self) is None else (old(self)[0], [])

    around(patch, simulated_network.MemoryJournal, "read", read)


def a_snapshot_is_made_a_push_too_late(patch: Patch) -> None:
    old = simulated_network.Simulation._snapshot
    patch.setattr(simulated_network.Simulation, "_snapshot", lambda self: (
        partial(self.outcome.snapshots.__setitem__, len(self.outcome.entries) - 1)
        if old(self) and len(self.outcome.entries) > 3 else None))  # fmt: skip


def a_server_sends_another_snapshot_when_it_is_asked_again(patch: Patch) -> None:
    def message(old: Any, self: Server, message: Any) -> Any:
        late = isinstance(message, ApplyPush) and message.snapshot and message.order < self.version
        snapshot = Snapshot(self.name, message.order + 1, self.store.variables()) if late else None
        return [*([("coordinator", snapshot)] if snapshot else []), *old(self, message)]

    around(patch, Server, "on_message", message)


FAULTS = [
    a_snapshot_is_made_a_push_too_late, a_server_sends_another_snapshot_when_it_is_asked_again,
    a_server_does_not_write_what_it_stages, a_server_does_not_write_what_it_applies,
    a_server_forgets_who_has_pushed, a_server_keeps_its_state_and_drops_later_records,
    no_bound, one_too_many_under_way, a_lost_batch_is_forgotten,
    a_batch_is_given_again_though_its_push_is_there, a_second_order_for_a_push_that_comes_twice,
    apply_is_not_sent_again, a_worker_does_not_ask_again, a_server_applies_in_the_order_of_arrival,
    a_server_applies_again_what_comes_again, a_server_does_not_wait_for_the_version,
    a_server_says_that_it_is_newer_than_it_is, a_worker_takes_any_answer,
]  # fmt: skip


@pytest.mark.parametrize("plant", FAULTS, ids=lambda f: f.__name__)
def test_a_fault_of_a_role_is_noticed(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, KeyError, GraphcError)):
        for seed in range(SEEDS):
            check(seed)
