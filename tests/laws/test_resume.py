"""The law of saving, over all strategies: how a run is cut into parts changes no bit."""

from __future__ import annotations

from pathlib import Path

import pytest
from laws.resume import STRATEGIES, check_elsewhere, check_resume, check_seeds, drawn, runs

pytestmark = pytest.mark.filterwarnings("ignore::graphc.support.errors.GraphcWarning")
SLOW = 600


def backend_of(seed: int) -> str:
    return "reference" if seed % 7 else "numpy"


@pytest.mark.one_in(4)
@pytest.mark.parametrize("seed", range(len(STRATEGIES)), ids=lambda seed: drawn(seed).strategy)
def test_a_run_that_is_cut_in_two_ends_with_the_same_bits(seed: int, tmp_path: Path) -> None:
    check_resume(drawn(seed), backend_of(seed), tmp_path / "half.safetensors")


def test_a_reproducible_run_goes_on_to_the_same_bits_on_other_devices(tmp_path: Path) -> None:
    run = drawn(STRATEGIES.index("mirrored(3) * reproducible(4)"))
    check_elsewhere(run, "zero(2, stage=2) * reproducible(4)", tmp_path / "half.safetensors")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("start", range(len(STRATEGIES), SLOW, 50))
def test_many_runs_that_are_cut_in_two_end_with_the_same_bits(start: int, tmp_path: Path) -> None:
    path, count = tmp_path / "half.safetensors", 0
    for count, run in enumerate(runs(start, start + 50), 1):
        check_resume(run, backend_of(count), path)
    assert count > 45


@pytest.mark.parametrize(
    "strategy", ["mirrored(3)", "zero(2, stage=3)", "tensor_split(2)", "diloco(2)"]
)
def test_first_values_follow_from_the_seed_and_the_names_alone(strategy: str) -> None:
    check_seeds(strategy)
