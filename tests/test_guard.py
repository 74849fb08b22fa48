"""The guarded memory that other tests use."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from guard import CANARY, FRESH, POSSIBLE, Guard, Stray, fresh_arrays

pytestmark = pytest.mark.skipif(not POSSIBLE, reason="rights of pages are set as on Linux")
SIZES = (1, 4, 64, 4095, 4096, 4100, 100_000)


def touch(x: np.ndarray, at: int) -> int:
    return ctypes.c_uint8.from_address(x.ctypes.data + at).value


@pytest.mark.parametrize("size", SIZES)
def test_a_byte_behind_a_block_is_noted_and_the_process_lives(size: int) -> None:
    guard = Guard(front=False)
    x = guard.block(size)
    guard.check()
    touch(x, size)
    with pytest.raises(Stray, match=f"of {size} bytes: byte {size} was touched, behind it"):
        guard.check()
    guard.check()


@pytest.mark.parametrize("size", SIZES)
def test_a_byte_before_a_block_is_noted(size: int) -> None:
    guard = Guard(front=True)
    x = guard.block(size)
    touch(x, -1)
    with pytest.raises(Stray, match="byte -1 was touched, before it"):
        guard.check()


def test_blocks_lie_in_front_and_behind_by_turns() -> None:
    guard = Guard()
    starts = [guard.block(64).ctypes.data % 4096 for _ in range(4)]
    assert starts == [4096 - 64, 0, 4096 - 64, 0]


def test_what_is_written_beside_a_block_on_its_page_is_noted() -> None:
    guard = Guard(front=True)
    x = guard.block(100)
    ctypes.c_uint8.from_address(x.ctypes.data + 107).value = 0
    assert touch(x, 106) == CANARY
    with pytest.raises(Stray, match="byte 107 was written"):
        guard.check()


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_fresh_memory_is_nan_in_every_float(dtype: str) -> None:
    assert np.isnan(Guard().block(4096).view(dtype)).all()


def test_fresh_memory_is_huge_in_every_integer() -> None:
    for dtype in ("i4", "i8", "u1"):
        found = Guard().block(4096).view(dtype)
        assert (found.astype(float) > np.iinfo(dtype).max / 4).all()


@pytest.mark.parametrize("shape, order", [((), "C"), ((0, 3), "C"), ((3, 5), "C"), ((3, 5), "F")])
def test_empty_arrays_of_numpy_are_fresh(shape: tuple[int, ...], order: str) -> None:
    with fresh_arrays():
        x = np.empty(shape, np.float32, order)
        assert np.isnan(x).all() and np.isnan(np.empty_like(x)).all()
        assert x.shape == shape


def test_memory_that_is_opened_after_a_stray_access_is_fresh_too() -> None:
    guard = Guard()
    assert touch(guard.block(8), 8) == FRESH[0]
    with pytest.raises(Stray):
        guard.check()


def test_many_strays_are_noted_once_a_page_at_most() -> None:
    guard = Guard()
    x = guard.block(64)
    for at in range(64, 8 << 20, 4096):
        touch(x, at)
    with pytest.raises(Stray):
        guard.check()
