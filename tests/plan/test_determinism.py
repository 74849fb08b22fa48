"""What a plan promises of its numbers, and what breaks the stronger promise."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphc.compiler.driver import compile_module
from graphc.frontend.language.load import load_module
from graphc.plan.determinism import Determinism
from graphc.runtime.checkpoints.fingerprint import in_words, kernel_fingerprint
from graphc.strategies import parse_strategy

DIGITS = Path(__file__).parents[2] / "examples" / "digits.gc"


def promised(strategy: str) -> Determinism:
    plan = compile_module(load_module(DIGITS), parse_strategy(strategy))
    return Determinism.of(plan.meta["determinism"])


@pytest.mark.parametrize(
    ("strategy", "most"),
    [
        ("reproducible(8)", 8),
        ("mirrored(4) * accumulate(2) * reproducible(8)", 8),
        ("mirrored(3) * reproducible(32)", 32),
        ("zero(2, stage=3) * reproducible(8)", 8),
        ("tensor_split(2) * mirrored(2) * reproducible(8, tiles=2)", 16),
    ],
)
def test_a_grid_promises_the_same_bits(strategy: str, most: int) -> None:
    found = promised(strategy)
    assert (found.bits, found.most, found.breaks) == ("same bits", most, ())
    assert str(found) == f"same bits on 1 to {most} devices"


def test_without_a_grid_numbers_are_equal_up_to_rounding() -> None:
    found = promised("one_device()")
    assert str(found) == "equal up to rounding: no reproducible(slots) in the strategy"


@pytest.mark.parametrize(
    ("strategy", "op", "axis"),
    [("mirrored(2)", "all_reduce", "data"), ("accumulate(3)", "accumulate", "turn")],
)
def test_the_sums_that_depend_on_devices_are_named(strategy: str, op: str, axis: str) -> None:
    _, *sums, more = promised(strategy).breaks
    assert len(sums) == 3 and more == "and 3 more"
    assert all(f"= {op} adds in an order that depends on {axis}" in text for text in sums)


def test_replicas_that_step_alone_promise_nothing() -> None:
    found = promised("parameter_server(2, 1, staleness=2)")
    assert str(found).startswith("no promise of bits: replicas run independently")


def test_a_fingerprint_says_what_bits_depend_on() -> None:
    found = kernel_fingerprint("numpy", "numpy")
    assert {"backend", "numpy", "blas", "machine", "simd", "graphc"} <= set(found)
    assert "executor" not in found
    assert f"numpy {found['numpy']}" in in_words(found)
