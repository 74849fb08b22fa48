"""A step need not minimize, and what it calls its loss need not be a number."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]
REPORTS = {"an array": "report loss = error", "none": "report mae = mean(abs(error))"}


@pytest.fixture(params=REPORTS)
def program(request: pytest.FixtureRequest, folder: Path) -> str:
    """line.gc without its objective."""
    text = (folder / "line.gc").read_text().replace("loss  = mean", "size  = mean")
    lines = [x for x in text.splitlines() if not x.strip().startswith("report")]
    text = "\n".join(lines).replace("minimize loss with sgd(0.1)", REPORTS[request.param])
    (folder / "line.gc").write_text(text)
    return "line.gc"


@pytest.mark.parametrize("strategy", ["mirrored(2)", "parameter_server(2, 1, staleness=1)"])
def test_a_run_without_a_loss_says_nothing_of_it(program: str, strategy: str, call: Call) -> None:
    result = call("run", program, "--strategy", strategy)
    assert result.status == 0 and "loss" not in result.out + result.err, result.err
    result = call("run", program, "--strategy", strategy, "--json")
    assert json.loads(result.out.splitlines()[-1])["loss"] is None


def test_runs_without_a_loss_are_compared_by_their_variables(program: str, call: Call) -> None:
    result = call("check", program, "--devices", "2", "--steps", "3")
    assert result.status == 0 and result.out.count("devices  no loss  differs by") == 2
    result = call("check", program, "--devices", "2", "--steps", "3", "--json")
    rows = [json.loads(line) for line in result.out.splitlines()]
    assert [row["loss"] for row in rows] == [None, None] and all(row["equal"] for row in rows)
    result = call("check", program, "--devices", "2", "--steps", "3", "--bits")
    assert (result.status, result.out.count("ok ")) == (0, 2), result.out
