"""The limits of several trainers on the threads of products."""

from __future__ import annotations

import os
from itertools import permutations

import pytest

from graphc.runtime.machine import blas


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What is set, on a machine of eight cores."""
    found = [8]
    monkeypatch.setattr(blas, "blas_threads", lambda: found[-1])
    monkeypatch.setattr(blas, "set_blas_threads", found.append)
    monkeypatch.setattr(blas, "_LIMITS", blas._Limits())
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    return found


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_limits_end_in_any_order(threads: list[int], order: tuple[int, ...]) -> None:
    limits = [blas.limit_blas(2), blas.limit_blas(4), blas.limit_blas(1, single=True)]
    parts = [4, 2, 1]
    assert threads[-1] == 1
    for k in order:
        limit = limits[k]
        assert limit is not None and limit.threads == parts[k]
        limit.end()
        limit.end()
        parts[k] = 8
        assert threads[-1] == min(parts)


def test_a_limit_that_nobody_has_any_more_counts_for_none(threads: list[int]) -> None:
    blas.limit_blas(8)  # and is dropped
    kept = blas.limit_blas(2)
    assert kept is not None and threads[-1] == 4
    kept.end()
    assert threads[-1] == 8


def test_one_device_has_all_cores(threads: list[int]) -> None:
    assert blas.limit_blas(1) is None and threads == [8]
