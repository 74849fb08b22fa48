"""Where threads meet: as if every extent since the last meeting were compared with every other."""

from __future__ import annotations

import random

import pytest
from graphc_numpy.native.step.sharing import ByteRange, _Touched


@pytest.mark.parametrize("seed", range(30))
def test_what_was_touched_clashes_with_what_one_of_its_extents_overlaps(seed: int) -> None:
    r, touched = random.Random(seed), _Touched()
    every: list[tuple[ByteRange, bool]] = []
    for _ in range(60):
        start = r.randrange(200)
        x = ByteRange(r.randrange(2), start, start + r.randrange(1, 9), r.random() < 0.4)
        for hows in ((True,), (False,), (True, False)):
            one_by_one = any(_clash(x, y) for y, how in every if how in hows)
            assert touched.clashes(x, [(how,) for how in hows]) == one_by_one
        how = r.random() < 0.5
        touched.add(x, (how,))
        every.append((x, how))


def _clash(x: ByteRange, y: ByteRange) -> bool:
    same = x.memory == y.memory and (x.written or y.written)
    return same and x.start < y.stop and y.start < x.stop
