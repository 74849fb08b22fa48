"""The arena of a lowered program: what lives at the same time lies apart."""

from __future__ import annotations

import random

import pytest

from graphc.arena import aligned
from graphc.kernels.memory import Timeline, offsets
from graphc.program import Buffer
from graphc.types import F32


def timeline(seed: int) -> tuple[Timeline, list[Buffer]]:
    r = random.Random(seed)
    buffers = [Buffer(i, f"b{i}", (r.choice((1, 16, 100, 1000)),), F32) for i in range(25)]
    found = Timeline([set() for _ in range(20)])
    for b in buffers:
        first, last = sorted((r.randrange(20), r.randrange(20)))
        found.touched[first].add(b.id)
        found.touched[last].add(b.id)
    return found, buffers


def lives(found: Timeline) -> dict[int, tuple[int, int]]:
    ends: dict[int, list[int]] = {}
    for at, touched in enumerate(found.touched):
        for b in touched:
            ends.setdefault(b, []).append(at)
    return {b: (min(x), max(x)) for b, x in ends.items()}


@pytest.mark.parametrize("most", [0, 1000])
@pytest.mark.parametrize("seed", range(20))
def test_buffers_that_live_at_once_lie_apart(
    seed: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphc.kernels.memory.MOST", most)
    found, buffers = timeline(seed)
    places, size = offsets(found, buffers, ())
    ranges = {b: range(at, at + buffers[b].bytes) for b, at in places.items()}
    assert len(ranges) == 25 and max(x.stop for x in ranges.values()) <= size
    for a, (first, last) in lives(found).items():
        for b, (since, until) in lives(found).items():
            if a < b and since <= last and first <= until:
                x, y = ranges[a], ranges[b]
                assert x.stop <= y.start or y.stop <= x.start


def test_what_is_small_does_not_break_the_room_of_what_is_large() -> None:
    sizes = (1000, 16, 1000, 1000)  # the third does not fit beside the second where the first was
    buffers = [Buffer(i, f"b{i}", (n,), F32) for i, n in enumerate(sizes)]
    found = Timeline([{0, 3}, {1}, {2}, {1, 2, 3}])
    assert offsets(found, buffers, ())[1] == 2 * aligned(4000) + aligned(64)
