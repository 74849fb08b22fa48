"""What a checkpoint says of the kernels and the grid that made its steps."""

from __future__ import annotations

import warnings

import pytest

from graphc.runtime.checkpoints.kernel_history import (
    KernelHistoryPart,
    changes,
    gone_on,
    in_json,
    of_json,
    warn_of_change,
)
from graphc.support.errors import GraphcError, GraphcWarning

OLD, NEW = {"backend": "numpy", "core": "Haswell"}, {"backend": "numpy", "core": "Zen"}
FIRST = KernelHistoryPart(0, "reproducible(8)", OLD)


def told(before: KernelHistoryPart, now: KernelHistoryPart) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GraphcWarning)
        warn_of_change("a.safetensors", before, now)
    return [str(w.message) for w in caught]


def test_a_run_that_goes_on_alike_is_one_part() -> None:
    assert gone_on((FIRST,), KernelHistoryPart(6, "reproducible(8)", OLD)) == (FIRST,)
    assert changes((FIRST,)) == ()


def test_every_change_is_a_part_and_named() -> None:
    other, back = KernelHistoryPart(6, "reproducible(8)", NEW), KernelHistoryPart(9, "", OLD)
    found = gone_on(gone_on((FIRST,), other), back)
    assert found == (FIRST, other, back)
    assert changes(found) == (
        "after step 6: core Haswell became Zen",
        "after step 9: reproducible(8) became no grid",
        "after step 9: core Zen became Haswell",
    )


def test_what_made_no_step_is_forgotten() -> None:
    assert gone_on((FIRST,), KernelHistoryPart(0, "", NEW)) == (KernelHistoryPart(0, "", NEW),)


def test_a_history_is_written_and_read() -> None:
    history = (FIRST, KernelHistoryPart(6, "", NEW))
    assert of_json(in_json(history)) == history
    assert of_json("") == (KernelHistoryPart(0, "", {}),)


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "3", "[[0, 1, {}]]", '[["a", "", {}]]', '[[0, "", {"a": 1}]]', "[[0]]",
     '[[4, "", {}], [4, "", {}]]', "[" * 100_000],
)  # fmt: skip
def test_a_history_that_is_damaged_is_an_error(text: str) -> None:
    with pytest.raises(GraphcError, match="history of kernels is not well-formed") as found:
        of_json(text)
    assert found.value.code == "G0509"


def test_other_kernels_draw_a_warning_where_bits_are_promised() -> None:
    (text,) = told(FIRST, KernelHistoryPart(6, "reproducible(8)", NEW))
    assert text.startswith("warning[G0527]") and "core Haswell became Zen" in text
    assert "after step 6 its bits may differ" in text
    assert told(FIRST, KernelHistoryPart(6, "", NEW)) == []
    assert told(FIRST, KernelHistoryPart(0, "reproducible(8)", NEW)) == []


def test_a_checkpoint_of_no_grid_draws_a_warning() -> None:
    (text,) = told(KernelHistoryPart(0, "", OLD), KernelHistoryPart(6, "reproducible(8)", OLD))
    assert text.startswith("warning[G0529]: no grid became reproducible(8)")


def test_unknown_kernels_draw_a_note() -> None:
    (text,) = told(KernelHistoryPart(0, "", {}), KernelHistoryPart(6, "reproducible(8)", NEW))
    assert text.startswith(
        "note[G0528]: a.safetensors does not say which kernels computed its 6 steps"
    )
