"""Asynchronous runs in all weathers: every push applied once, in one order, none too old."""

from __future__ import annotations

from collections import Counter as Histogram

import pytest
from counters import compute, counters
from simulated_network import Outcome, Simulation, Weather
from simulations import check, weather_of

from graphc.runtime.asynchronous.recordings import replay

QUICK, ALL = 2000, 100_000


def test_two_thousand_schedules_keep_all_promises() -> None:
    for seed in range(QUICK):
        check(seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_schedules_keep_all_promises() -> None:
    for seed in range(QUICK, ALL):
        check(seed)


def test_the_seeds_have_every_kind_of_weather() -> None:
    drawn = [weather_of(seed)[-1] for seed in range(QUICK)]
    assert any(w.drop and w.twice and w.deaths and w.suspected for w in drawn)
    died = [check(seed).workers - weather_of(seed)[0] for seed in range(100)]
    assert sum(died) > 20


def test_most_snapshots_arrive_though_servers_are_killed() -> None:
    outcomes = [check(seed) for seed in range(300)]
    due = sum(len(outcome.entries) // 3 for outcome in outcomes)
    assert sum(outcome.kills for outcome in outcomes) > 500
    assert sum(len(outcome.snapshots) for outcome in outcomes) > 0.5 * due


def run(workers: int, staleness: int | None, batches: int, weather: Weather) -> Outcome:
    return Simulation(counters(2), compute, batches, workers, staleness, weather).run()


@pytest.mark.parametrize("bound", [1, 2, 3, 5])
def test_the_observed_staleness_reaches_the_bound_and_never_passes_it(bound: int) -> None:
    outcome = run(bound + 1, bound, 200, Weather(1, slow=10))
    ages = Histogram(e.staleness for e in outcome.entries)
    assert max(ages) == bound


def test_without_a_bound_a_slow_worker_is_as_late_as_it_is_slow() -> None:
    outcome = run(4, None, 400, Weather(1, delay=0.01, slow=10))
    assert max(e.staleness for e in outcome.entries) > 15


@pytest.mark.parametrize("bound", [None, 64])
def test_a_slow_worker_does_not_slow_the_others(bound: int | None) -> None:
    def rate(slow: float) -> float:
        outcome = run(4, bound, 800, Weather(3, delay=0.01, slow=slow))
        fast = [t for e, t in zip(outcome.entries, outcome.times, strict=True)
                if e.worker != "worker.0"]  # fmt: skip
        return len(fast) / outcome.times[-1]

    assert rate(10) >= 0.9 * rate(1)


def test_one_worker_with_bound_zero_is_the_sequential_run() -> None:
    outcome = run(1, 0, 30, Weather(0))
    stores = counters(2)
    for batch in range(30):
        values = {k: x for s in stores for k, x in s.read().items()}
        for store, part in zip(stores, compute(batch, values)[0], strict=True):
            store.apply(part)
    again = counters(2)
    replay(outcome.entries, again, compute)
    assert [s.value for s in again] == [s.value for s in stores]
    assert all(e.staleness == 0 for e in outcome.entries)


def test_a_run_is_the_same_each_time() -> None:
    weather = Weather(5, drop=0.2, twice=0.2, deaths=0.2)
    assert run(3, 2, 40, weather).entries == run(3, 2, 40, weather).entries
