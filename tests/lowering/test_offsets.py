"""The arena of a lowered program: what lives at the same time lies apart."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from graphc.ir.types import F32
from graphc.lowering.memory.arena import aligned
from graphc.lowering.memory.offsets import Offsets, tightest
from graphc.lowering.memory.timeline import Timeline, lives_of
from graphc.lowering.program.program import Buffer
from graphc.lowering.target import CPU, GPU, GPU_ALONE


def timeline(seed: int) -> tuple[Timeline, list[Buffer]]:
    r = random.Random(seed)
    buffers = [Buffer(i, f"b{i}", (r.choice((1, 16, 100, 1000)),), F32) for i in range(25)]
    found = Timeline([set() for _ in range(20)])
    for b in buffers:
        first, last = sorted((r.randrange(20), r.randrange(20)))
        found.touched[first].add(b.id)
        found.touched[last].add(b.id)
    return found, buffers


def offsets(timeline: Timeline, buffers: list[Buffer]) -> Offsets:
    return tightest(lives_of(timeline, ()), {b.id: b.bytes for b in buffers})


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
    monkeypatch.setattr("graphc.lowering.memory.offsets.MOST", most)
    found, buffers = timeline(seed)
    places, size = offsets(found, buffers)
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
    assert offsets(found, buffers)[1] == 2 * aligned(4000) + aligned(64)


# 0 outlives the loop; 1 and 2 are made and used in a turn, by more kernels in a later turn
TURNS = [{0}, {1}, {1, 2}, {2, 0}, {1}, {1, 0}, {2}, {2, 0}]


@pytest.mark.parametrize("most", [0, 1000])
def test_what_a_first_turn_makes_is_not_kept_while_a_later_turn_runs(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphc.lowering.memory.offsets.MOST", most)
    buffers = [Buffer(i, f"b{i}", (100,), F32) for i in range(4)]
    found = Timeline([*TURNS, {3}, {3, 0}], loops=[(range(1, 4), range(4, 8))])
    places, size = offsets(found, buffers)
    each = aligned(400)
    assert size == 3 * each and len({places[b] for b in (0, 1, 2)}) == 3
    only_first = Timeline([{0}, {1}, {1, 0}, {2}, {2, 0}, {0}], loops=[(range(1, 3), range(3, 5))])
    assert offsets(only_first, buffers)[1] == 2 * each


def test_a_target_says_how_buffers_are_aligned() -> None:
    found, buffers = timeline(1)
    sizes = {b.id: b.bytes for b in buffers}
    places, size = tightest(lives_of(found, ()), sizes, GPU.align)
    assert GPU.align > CPU.align and all(at % GPU.align == 0 for at in places.values())
    assert size % GPU.align == 0


def test_what_a_gpu_computes_depends_on_no_more_than_who_makes_products() -> None:
    """Only with a library, whose sums have an order of their own, are sums over tiles others than a
    CPU's."""
    free = {"align": CPU.align, "waiting": CPU.waiting, "shared": CPU.shared}  # without bits
    assert replace(GPU_ALONE, **free) == CPU
    assert replace(GPU, library=None, cache=CPU.cache, shared=GPU_ALONE.shared) == GPU_ALONE
