"""Memory that was let go of is used again, and only then."""

from __future__ import annotations

import numpy as np

from graphc.runtime.backends.spare_memory import ALIGN, SpareMemory


def test_an_array_has_the_memory_of_one_that_nobody_has() -> None:
    memory = SpareMemory()
    first = memory.copy("x", np.arange(6, dtype=np.float32).reshape(2, 3))
    place = first.ctypes.data
    assert place % ALIGN == 0
    assert first.tolist() == [[0, 1, 2], [3, 4, 5]]
    del first
    assert memory.array("x", (3, 2), np.float32).ctypes.data == place


def test_the_memory_of_a_view_is_not_used_again() -> None:
    memory = SpareMemory()
    first = memory.copy("x", np.ones(8, np.int64))
    row = first[3:4].view(np.uint8)
    place = first.ctypes.data
    del first
    second = memory.copy("x", np.zeros(8, np.int64))
    assert second.ctypes.data != place
    assert row.any()
    del row
    assert memory.array("x", (8,), np.int64).ctypes.data == place


def test_names_have_memory_of_their_own_and_one_spare_block_each() -> None:
    memory = SpareMemory()
    arrays = [memory.array("x", (4,), np.int32) for _ in range(3)]
    places = {a.ctypes.data for a in arrays}
    del arrays
    again = [memory.array(n, (4,), np.int32) for n in ("y", "x")]
    assert again[1].ctypes.data in places
    assert again[0].ctypes.data != again[1].ctypes.data
    assert not memory._spare["x"]
