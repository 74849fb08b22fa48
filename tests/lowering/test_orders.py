"""The order of sums is kept by fusion: contributions alive at once in a lowered program."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, log2

import pytest
from passes.test_orders import WIDTH, compiled, shared

from graphc.lowering import lower
from graphc.lowering.memory import offsets, pointers
from graphc.lowering.memory.timeline import Lives
from graphc.lowering.program.program import Program

GRADIENT = 8 * WIDTH**2
COUNTS = (2, 3, 5, 8, 16, 33)


def most_alive(program: Program, patch: pytest.MonkeyPatch) -> int:
    """The most buffers of a gradient's size that are alive at once; copies of the weight apart."""
    most = 0

    def watch(lives: Lives, sizes: Mapping[int, int], align: int) -> offsets.Offsets:
        nonlocal most
        names = {b.id: b.name for b in program.buffers}
        counted = {b: x for b, x in lives.items() if not names.get(b, "").startswith("w.")}
        for at in range(max(first for life in lives.values() for first, _ in life) + 1):
            alive = [b for b, life in counted.items() if any(x <= at <= y for x, y in life)]
            most = max(most, sum(sizes[b] // GRADIENT for b in alive))
        return offsets.tightest(lives, sizes, align)

    patch.setattr(pointers, "tightest", watch)
    lower.lower(program)
    return most


@pytest.mark.parametrize("n", COUNTS)
def test_a_fused_tree_keeps_as_little_as_any(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program = compiled(shared(n, "fanin=tree", batch=2))
    assert most_alive(program, monkeypatch) <= ceil(log2(n)) + 2


@pytest.mark.parametrize("n", COUNTS)
def test_a_fused_running_sum_keeps_two(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert most_alive(compiled(shared(n, "fanin=accumulate", batch=2)), monkeypatch) <= 2


@pytest.mark.parametrize("turns", COUNTS)
def test_sums_over_turns_keep_as_little(turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = f"accumulate({turns})"
    tree = compiled(shared(1, "turns=tree", batch=2 * turns), strategy)
    assert most_alive(tree, monkeypatch) <= ceil(log2(turns)) + 2
    running = compiled(shared(1, "turns=accumulate", batch=2 * turns), strategy)
    assert most_alive(running, monkeypatch) <= 2
