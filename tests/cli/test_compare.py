"""compare: what it prints, writes, and refuses."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli.conftest import Call

NAMES = "one_device()", "mirrored(2)", "parameter_server(2, 1, staleness=1)"
FEW = "--steps", 8, "--rounds", 2


def test_a_comparison_ends_with_what_to_take(folder: Path, call: Call) -> None:
    named = [word for name in NAMES for word in ("--strategy", name)]
    result = call("compare", "line.gc", *named, *FEW, "--slow", "0:2x", "--plot", "a.svg")
    assert result.status == 0, result.err
    head, *lines = result.out.splitlines()
    assert head.split() == [
        "candidate", "devices", "a", "step", "rounds", "memory", "sent", "error", "loss", "loss",
        "at", *head.split()[-2:],
    ]  # fmt: skip
    assert [line.split("  ")[0] for line in lines[:3]] == [
        "one_device()", "mirrored(2)", "parameter_server(2, staleness=1)"
    ]  # fmt: skip
    assert "one_device(): waits for its slowest device" in result.out
    assert sum(line.startswith("take ") for line in lines) == 1
    ElementTree.parse(folder / "a.svg")


@pytest.mark.ci
def test_json_has_a_record_for_each_candidate(folder: Path, call: Call) -> None:
    result = call("compare", "line.gc", *FEW, "--order", "tree", "--json")  # the common strategies
    assert (result.status, result.err) == (0, "")
    record = json.loads(result.out)
    assert record["steps"] == 8 and record["take"]
    assert len(record["candidates"]) >= 4
    for found in record["candidates"]:
        assert found["order"] == "tree"
        assert found["step_seconds"] > 0 and found["error"] <= found["allowed_error"]


def test_where_none_fits_the_status_is_1(folder: Path, call: Call) -> None:
    result = call("compare", "line.gc", *FEW, "--strategy", "one_device()", "--peak", "100")
    assert result.status == 1
    assert "on a device, the limit is 100 B" in result.out
    assert result.out.endswith("no candidate can be taken\n")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--slow", "1"), 2, "write DEVICE:FACTORx, each device once, such as 0:3x"),
        (("--slow", "1:2x", "--slow", "1:3x"), 2, "each device once"),
        (("--slow", "1:0.5"), 2, "such as 0:3x"),
        (
            ("--strategy", "mirrored(2)", "--slow", "7:3x"),
            1,
            "a device or worker 7: mirrored(2) has 2",
        ),
        (("--strategy", "mirrored(2"), 1, "error[G0102]"),
        (("--order", "sideways"), 1, "error[G0"),
        (("--plot", "none/a.svg"), 1, "error[G0512]"),
        (("--plot", "a.png"), 2, "'a.png' is not called .svg"),
        (("--peak", "much"), 2, "is not a size"),
        (("--backend", "abacus"), 1, "error[G0701]"),
    ],
)
def test_bad_options_are_refused_before_anything_runs(
    folder: Path, call: Call, words: tuple[str, ...], status: int, said: str
) -> None:
    result = call("compare", "line.gc", *FEW, *words)
    assert (result.status, result.out) == (status, "")
    assert said in result.err


def test_a_program_that_can_not_be_compared_says_why(folder: Path, call: Call) -> None:
    text = (folder / "line.gc").read_text()
    (folder / "a.gc").write_text(
        text.replace("minimize loss with sgd(0.1)", "report loss = loss").replace(
            "seen <- seen + 1", ""
        )
    )
    (folder / "b.gc").write_text(text.replace("data train", "data other"))
    assert "error[G0819]" in call("compare", "a.gc").err
    assert "error[G0607]" in call("compare", "b.gc").err
    assert "error[" in call("compare", "absent.gc").err
