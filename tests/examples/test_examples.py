"""Every .gc example reaches its figure on held-out data, beats its baseline, and is the same under
three strategies."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import baselines
import pytest
from click.testing import CliRunner

from graphc.cli import group

EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass(frozen=True)
class Example:
    """A file, the metric that counts, the figure it must reach, and the figure to beat."""

    file: str
    metric: str
    figure: float
    baseline: Callable[[], float]
    strategies: tuple[str, str, str]
    less_is_better: bool = False

    def better(self, a: float, b: float) -> bool:
        return a < b if self.less_is_better else a > b


CASES = (
    Example(
        "digits.gc", "accuracy", 0.97, baselines.linear_digits,
        ("mirrored(4) * accumulate(2)", "one_device()", "tensor_split(2)"),
    ),
    Example(
        "digits_cnn.gc", "accuracy", 0.98, baselines.linear_digits,
        ("mirrored(2)", "tensor_split(2)", "mirrored(3)"),
    ),
    Example(
        "autoencoder.gc", "loss", 0.018, baselines.principal_components,
        ("mirrored(2) * tensor_split(2)", "accumulate(2)", "mirrored(3)"), less_is_better=True,
    ),
    Example(
        "autoencoder.gc", "accuracy", 0.89, baselines.linear_on_components,
        ("mirrored(2) * tensor_split(2)", "accumulate(2)", "mirrored(3)"),
    ),
    Example(
        "cells.gc", "loss", 0.125, baselines.linear_cells,
        ("mirrored(3)", "accumulate(4)", "tensor_split(2)"), less_is_better=True,
    ),
    Example(
        "linear.gc", "loss", 0.16, baselines.variance_of_cells,
        ("mirrored(4)", "one_device()", "accumulate(3)"), less_is_better=True,
    ),
    Example(
        "pages.gc", "accuracy", 0.70, baselines.most_frequent_page,
        ("mirrored(2) * accumulate(2)", "tensor_split(2)", "accumulate(3)"),
    ),
)  # fmt: skip
IDS = [f"{case.file[:-3]}-{case.metric}" for case in CASES]


@cache
def trained(file: str, strategy: str, backend: str) -> dict[str, Any]:
    """The report of `graphc run FILE --json`."""
    options = ["--strategy", strategy, "--backend", backend, "--json"]
    result = CliRunner().invoke(group, ["run", str(EXAMPLES / file), *options])
    if result.exception is not None:
        raise result.exception
    report = json.loads(result.stdout.splitlines()[-1])
    assert isinstance(report, dict)
    return report


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_example_reaches_its_figure_and_beats_its_baseline(
    case: Example, backend_name: str
) -> None:
    got = trained(case.file, case.strategies[0], backend_name)["metrics"][case.metric]
    assert case.better(got, case.figure)
    assert case.better(case.figure, case.baseline())


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_example_is_the_same_under_three_strategies(case: Example, backend_name: str) -> None:
    first, *others = (trained(case.file, s, backend_name) for s in case.strategies)
    one_example = 1 / 297 + 1e-6  # rounding may turn one held-out example over
    for other in others:
        assert other["loss"] == pytest.approx(first["loss"], rel=2e-3)
        metrics, expected = other["metrics"], first["metrics"]
        assert metrics["loss"] == pytest.approx(expected["loss"], rel=2e-3)
        assert metrics[case.metric] == pytest.approx(expected[case.metric], abs=one_example)


def test_example_names_its_own_strategy_first() -> None:
    for case in CASES:
        text = (EXAMPLES / case.file).read_text(encoding="utf-8")
        assert f"strategy default = {case.strategies[0]}\n" in text


def test_every_example_is_tested() -> None:
    assert {f.name for f in EXAMPLES.glob("*.gc")} == {case.file for case in CASES}


def test_every_example_is_formatted() -> None:
    files = [str(f) for f in EXAMPLES.glob("*.gc")]
    result = CliRunner().invoke(group, ["fmt", "--check", *files])
    assert result.exit_code == 0, result.output


def test_batch_norm_over_microbatches_is_refused_with_its_line() -> None:
    """Its statistics need the whole batch in the middle of the step: a barrier."""
    arguments = ["show", str(EXAMPLES / "digits_cnn.gc"), "--strategy", "accumulate(2)"]
    result = CliRunner().invoke(group, arguments)
    assert "barrier" in str(result.exception)
