"""The times of recorded steps: what threads did and waited for, and what is left to Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from graphc.runtime.profiling.recorder import (
    CAME,
    ENDED,
    HOW,
    MET,
    NUMBER,
    Activity,
    DeviceLog,
)

Track: TypeAlias = tuple[int, int]  # device, thread of it


@dataclass(frozen=True, slots=True)
class ThreadEvent:
    """One run of an activity by a thread: it waits from `came` to `met`, and works until `ended`.

    worked: whether the thread had a part of it; times are in nanoseconds
    """

    activity: Activity
    turn: int
    worked: bool
    came: int
    met: int
    ended: int


@dataclass(frozen=True, slots=True)
class StepTimes:
    """One step. begin, end: of the call of `step`

    events: of each thread of each device, in the order of time
    lanes:  which thread of the machine each of them is: threads may run several devices in turn
    """

    number: int
    begin: int
    end: int
    events: dict[Track, list[ThreadEvent]]
    lanes: dict[Track, int]

    @property
    def nanoseconds(self) -> int:
        return self.end - self.begin

    @property
    def threads(self) -> int:
        """How many threads of the machine took part."""
        return len(set(self.lanes.values()))


@dataclass(frozen=True, slots=True)
class LaneTimes:
    """What a thread did in a step, in nanoseconds. Together this is the time of the step.

    work:    in kernels, in instructions that Python runs, and in exchanges
    waiting: for other threads
    python:  the rest: reading the batch, calling the machine code, returning results
    """

    work: int
    waiting: int
    python: int


def step_times(number: int, begin: int, end: int, logs: Iterable[DeviceLog]) -> StepTimes:
    """The records of a step that has just been run; the logs forget them."""
    events: dict[Track, list[ThreadEvent]] = {}
    lanes: dict[Track, int] = {}
    for log in logs:
        for thread, records in enumerate(log.take()):
            found = [
                ThreadEvent(
                    log.activity(r[NUMBER]),
                    r[HOW] >> 1,
                    bool(r[HOW] & 1),
                    r[CAME],
                    r[MET],
                    r[ENDED],
                )
                for r in records.tolist()
            ]
            if any(e.worked or e.met > e.came for e in found):
                track = log.device, thread
                events.setdefault(track, []).extend(found)
                lanes[track] = log.lanes(thread)
    for track, found in events.items():
        events[track] = sorted(found, key=lambda e: e.came)
    return StepTimes(number, begin, end, _waiting_apart(events), lanes)


def _waiting_apart(events: dict[Track, list[ThreadEvent]]) -> dict[Track, list[ThreadEvent]]:
    """Tell waiting from exchanging: a device that waits for an exchange waits for the others until
    the last of them has begun it."""
    begun: dict[tuple[str, str, int], int] = {}
    for e in (e for found in events.values() for e in found):
        if e.activity.kind == "start":
            key = _exchange(e)
            begun[key] = max(begun.get(key, 0), e.ended)

    def apart(e: ThreadEvent) -> ThreadEvent:
        if e.activity.kind != "exchange":
            return e
        return replace(e, met=min(max(begun.get(_exchange(e), e.came), e.came), e.ended))

    return {track: [apart(e) for e in found] for track, found in events.items()}


def _exchange(e: ThreadEvent) -> tuple[str, str, int]:
    node = e.activity.nodes[0].name if e.activity.nodes else ""
    return e.activity.program, node, e.turn


def lane_gaps(step: StepTimes) -> dict[Track, list[tuple[int, int]]]:
    """When threads wait between calls of machine code, each time on the track that goes on then."""
    found: dict[Track, list[tuple[int, int]]] = {}
    for events in _by_lane(step).values():
        first, last = window(step)
        tracks = {id(e): track for track, e in events}
        own = [e for _, e in events]
        following = {e.came: tracks[id(e)] for e in reversed(own)}
        for gap in gaps(own, first, last):
            found.setdefault(following.get(gap[1], tracks[id(own[-1])]), []).append(gap)
    return found


def lane_times(step: StepTimes) -> dict[int, LaneTimes]:
    """What each thread of the machine did."""
    first, last = window(step)
    lanes = sorted(_by_lane(step).items())
    return {lane: _times(step, [e for _, e in found], first, last) for lane, found in lanes}


def _by_lane(step: StepTimes) -> dict[int, list[tuple[Track, ThreadEvent]]]:
    """What each thread of the machine did, in order, and on which track."""
    lanes: dict[int, list[tuple[Track, ThreadEvent]]] = {}
    for track, found in step.events.items():
        lanes.setdefault(step.lanes[track], []).extend((track, e) for e in found)
    return {k: sorted(found, key=lambda x: x[1].came) for k, found in lanes.items()}


def window(step: StepTimes) -> tuple[int, int]:
    """From the first event of all threads to the end of the last one."""
    every = [e for events in step.events.values() for e in events]
    first = min((e.came for e in every), default=step.end)
    return first, max((e.ended for e in every), default=step.end)


def _times(step: StepTimes, found: Sequence[ThreadEvent], first: int, last: int) -> LaneTimes:
    work = sum(e.ended - e.met for e in found)
    waiting = sum(e.met - e.came for e in found) + sum(b - a for a, b in gaps(found, first, last))
    return LaneTimes(work, waiting, step.nanoseconds - work - waiting)


def gaps(found: Sequence[ThreadEvent], first: int, last: int) -> Iterator[tuple[int, int]]:
    """When a thread waits between the calls of machine code, from the first to the last of all.

    Between instructions of Python, it is Python that takes the time.
    """
    ends = [(first, True), *((e.ended, _is_native(e)) for e in found)]
    starts = [*((e.came, _is_native(e)) for e in found), (last, True)]
    for (a, before), (b, after) in zip(ends, starts, strict=True):
        if b > a and before and after:
            yield a, b


def _is_native(e: ThreadEvent) -> bool:
    return e.activity.kind in ("kernel", "meeting")
