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


def test_names_have_memory_of_their_own_and_as_many_blocks_as_were_in_use_at_a_time() -> None:
    memory = SpareMemory()
    arrays = [memory.array("x", (4,), np.int32) for _ in range(3)]
    places = [a.ctypes.data for a in arrays]
    arrays.clear()
    assert memory.array("y", (4,), np.int32).ctypes.data not in places
    again = [memory.array("x", (4,), np.int32) for _ in range(3)]
    assert {a.ctypes.data for a in again} == set(places)
    last = again.pop(1).ctypes.data  # that was let go of last: it may still be in a cache
    assert memory.array("x", (4,), np.int32).ctypes.data == last


def test_spare_memory_is_freed_and_what_is_in_use_is_not() -> None:
    memory = SpareMemory()
    used, spare = (memory.copy("x", np.ones(4, np.int32)) for _ in range(2))
    del spare
    assert memory._spare["x"]
    memory.clear()
    assert not memory._spare["x"]
    assert used.tolist() == [1, 1, 1, 1]
