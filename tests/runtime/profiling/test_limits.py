"""What the machine can do: measured, kept, and compared with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("llvmlite")

from graphc.runtime.backends import plugins
from graphc.runtime.profiling import limits
from graphc.runtime.profiling.limits import MachineLimits, MeasuringBackend
from graphc.support import config

SAMPLE = MachineLimits(
    "a processor", 4, {"f32": (100.0, 360.0), "f64": (50.0, 180.0)},
    {1000: (40.0, 160.0), 10**6: (10.0, 20.0)}, {1000: (30.0, 120.0), 10**6: (12.0, 24.0)},
    1e-7, 5.0,
)  # fmt: skip


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(limits, "cache_folder", lambda: tmp_path)
    return tmp_path


def test_limits_are_kept_by_processor(cache: Path) -> None:
    assert limits.read("a processor") is None
    path = limits.write(SAMPLE)
    assert path is not None and path.parent == cache
    assert limits.read("a processor") == SAMPLE
    assert limits.read("another one") is None


@pytest.mark.parametrize("text", ["", "{}", "[1]", "null", '{"processor": 3, "threads": "x"}'])
def test_a_damaged_file_counts_as_none(cache: Path, text: str) -> None:
    path = limits.write(SAMPLE)
    assert path is not None
    path.write_text(text)
    assert limits.read("a processor") is None


def test_rates_that_are_not_positive_count_as_none(cache: Path) -> None:
    limits.write(replace(SAMPLE, flops={"f32": (0.0, 1.0), "f64": (1.0, 1.0)}))
    assert limits.read("a processor") is None


def test_one_of_several_threads_has_its_share() -> None:
    assert (SAMPLE.flops_of("f32", 1), SAMPLE.flops_of("f32", 2)) == (100, 90)
    assert (SAMPLE.bytes_of(10, 1), SAMPLE.bytes_of(10, 4)) == (40, 40)
    assert (SAMPLE.bytes_of(10**5, 1), SAMPLE.bytes_of(10**9, 4)) == (40, 6)


def test_the_machine_is_measured() -> None:
    backend = plugins.backend("numpy")
    assert isinstance(backend, MeasuringBackend)
    found = backend.measure(quick=True)
    assert found is not None and found.quick and found.processor == backend.processor
    (f32, _), (f64, _) = found.flops["f32"], found.flops["f64"]
    assert 1e8 < f64 < 2 * f32 < 1e13
    for one, every in (*found.copy.values(), *found.triad.values()):
        assert 1e7 < one < 1e14 and every > one / 10
    assert found.threads == 1 or found.exchange_bytes > 1e6
    assert found.threads == config.get().threads or not config.get().threads


def test_where_nothing_is_compiled_nothing_is_measured() -> None:
    backend = replace(plugins.backend("numpy"), native=False)  # type: ignore[type-var]
    assert isinstance(backend, MeasuringBackend)
    assert backend.measure(quick=True) is None and backend.processor == ""
