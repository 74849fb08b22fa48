"""The law of damage, of checkpoints: a damaged file is refused, or gives exactly what was saved."""

from __future__ import annotations

from pathlib import Path

import pytest
from laws.damage import check_damage

CASES, SLOW = 300, 3_000


def test_a_damaged_checkpoint_is_refused_or_gives_what_was_saved(tmp_path: Path) -> None:
    refused = sum(check_damage(tmp_path, seed) for seed in range(CASES))
    assert refused > 0.95 * CASES


@pytest.mark.slow
def test_three_thousand_damaged_checkpoints_are_refused_or_give_what_was_saved(
    tmp_path: Path,
) -> None:
    refused = sum(check_damage(tmp_path, seed) for seed in range(CASES, CASES + SLOW))
    assert refused > 0.95 * SLOW
