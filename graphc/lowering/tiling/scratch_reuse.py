"""Scratch reuse: the memory of a row tiling's values in each thread, for the rows of a tile.

A value may take the memory of another one that no later step needs; even one that the same step
still reads, if it reads each entry before it writes there. So softmax is computed in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphc.lowering.kernel.axes import sizes
from graphc.lowering.kernel.code import Access, Gemm, Store, reached, statements
from graphc.lowering.memory.offsets import tightest
from graphc.lowering.memory.timeline import Timeline, lives_of
from graphc.lowering.program.program import Buffer
from graphc.lowering.tiling.row_access import KernelAxes, Part

Used = tuple[Part, tuple[int, ...]]  # a step's kernel, and the buffers behind its parameters


def laid_out(
    steps: Sequence[tuple[KernelAxes, tuple[int, ...]]], own: set[int], lengths: Mapping[int, int],
    buffers: Sequence[Buffer], rows: int,
) -> tuple[dict[int, int], int]:  # fmt: skip
    """(where each own value begins, bytes of all), with so many rows of each."""
    home = _homes([(x.kernel, behind) for x, behind in steps], own, lengths, buffers)
    timeline = Timeline()
    for x, behind in steps:
        timeline.add({home[behind[r.slot]] for r in x.reaches if behind[r.slot] in own})
    bytes_of = {b: rows * lengths[b] * buffers[b].dtype.bytes for b in own}
    offsets, size = tightest(lives_of(timeline, ()), bytes_of)
    return {b: offsets[h] for b, h in home.items() if h in offsets}, size


def _homes(
    steps: Sequence[Used], own: set[int], lengths: Mapping[int, int], buffers: Sequence[Buffer]
) -> dict[int, int]:
    """For each own value the one whose place it takes, or itself."""
    home, there = {b: b for b in own}, {b: [b] for b in own}
    last = {b: k for k, (_, behind) in enumerate(steps) for b in behind if b in own}
    born: set[int] = set()
    for k, step in enumerate(steps):
        for b in _stored(step, own - born):
            for a in [x for x in born if home[x] == x and _alike(buffers, lengths, x, b)]:
                every = there[a]
                if all(last[x] <= k and _comes_after(step, x, b) for x in every):
                    home[b] = a
                    there[a] = [*every, b]
                    break
            born.add(b)
    return home


def _stored(step: Used, own: set[int]) -> list[int]:
    """The own values that a step makes, in the order in which it stores them."""
    kernel, behind = step
    stored = (behind[x.access.slot] for x in statements(kernel) if isinstance(x, Store))
    return [b for b in dict.fromkeys(stored) if b in own]


def _alike(buffers: Sequence[Buffer], lengths: Mapping[int, int], a: int, b: int) -> bool:
    same = buffers[a].dtype == buffers[b].dtype and lengths[a] == lengths[b]
    return same and lengths[a] > 1


def _comes_after(step: Used, before: int, after: int) -> bool:
    """Whether a step has done all with one value before it stores another, entry by entry."""
    kernel, behind = step
    if isinstance(kernel, Gemm) and before in (
        behind[kernel.left.slot], behind[kernel.right.slot]
    ):  # fmt: skip
        return False
    old, new = list[tuple[int, Access]](), list[tuple[int, Access]]()
    for k, x in enumerate(statements(kernel)):
        for access in reached(x):
            of_buffer = {before: old, after: new}.get(behind[access.slot])
            if of_buffer is not None:
                of_buffer.append((k, access))
    if not old:
        return True
    layouts = {(a.strides, a.offset, a.row) for _, a in (*old, *new)}
    sized = zip(new[0][1].strides, sizes(kernel), strict=True)
    once = len(layouts) == 1 and all(stride for stride, n in sized if n > 1)
    return once and max(k for k, _ in old) < min(k for k, _ in new)


__all__ = ["laid_out"]
