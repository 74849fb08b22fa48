"""Simulated asynchronous runs, drawn from a seed, and all that must hold of each."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from counters import compute, counters
from simulated_network import Outcome, Simulation, Weather

from graphc.runtime.asynchronous.coordinator import RecordedPush
from graphc.runtime.asynchronous.recordings import Header, Recording, parse, replay


def weather_of(seed: int) -> tuple[int, int, int | None, int, Weather]:
    """(workers, servers, staleness, batches, weather) of a seed."""
    r = random.Random(seed)
    workers, servers = r.randint(1, 6), r.randint(1, 3)
    staleness = r.choice([None, 0, 1, 2, 3, workers, 9])
    weather = Weather(
        seed, delay=r.choice([0.01, 1.0, 8.0]), drop=r.choice([0, 0.1, 0.4]),
        twice=r.choice([0, 0.2]), deaths=r.choice([0, 0, 0.1, 0.3]),
        suspected=r.choice([0, 0.5, 1]), slow=r.choice([1, 1, 10, 30]),
        kills=r.choice([0, 0, 0.05, 0.2]),
    )  # fmt: skip
    return workers, servers, staleness, r.randint(0, 14), weather


def check(seed: int) -> Outcome:
    """Run the schedule of a seed, and check all that holds of every run."""
    workers, servers, staleness, batches, weather = weather_of(seed)
    stores = counters(servers)
    outcome = Simulation(stores, compute, batches, workers, staleness, weather).run()
    assert not outcome.stuck, f"seed {seed}: the run came to no end"
    order = [e.batch for e in outcome.entries]
    assert sorted(order) == list(range(batches)), f"seed {seed}: batches {order}"
    assert all(s.applied == order for s in stores), f"seed {seed}: servers disagree"
    pushes = [(e.worker, e.number) for e in outcome.entries]
    assert len(set(pushes)) == batches, f"seed {seed}: a push was applied twice"
    oldest = max((e.staleness for e in outcome.entries), default=0)
    assert staleness is None or oldest <= staleness, f"seed {seed}: {oldest} versions old"
    again = counters(servers)
    recording = parse(Recording(Header(), tuple(outcome.entries)).text())

    def same(entry: RecordedPush, results: Mapping[str, Any]) -> None:
        snapshot = outcome.snapshots.get(entry.order + 1)
        assert snapshot is None or all(snapshot[s.name] == s.value for s in again), (
            f"seed {seed}: a mixed snapshot"
        )

    replay(recording.entries, again, compute, same)
    assert [s.value for s in again] == [s.value for s in stores], f"seed {seed}: replay differs"
    return outcome
