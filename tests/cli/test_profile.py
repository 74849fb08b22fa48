"""`graphc profile` and `graphc run --trace`: what they print, write and refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from machine_limits import measured_at_once

pytest.importorskip("llvmlite")

Call = Callable[..., Any]


@pytest.fixture(autouse=True)
def _measured_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    measured_at_once(monkeypatch)


def test_a_profile_is_a_table_of_each_kind(folder: Path, call: Call) -> None:
    done = call("profile", "line.gc", "--steps", 3)
    assert done.status == 0, done.err
    first, *lines = done.out.splitlines()
    assert first.startswith("a step takes ") and "faster half of 3 steps, on 2 devices" in first
    for title in ("by source line", "by op", "by kernel", "by collective"):
        assert any(line.startswith(title) for line in lines)
    assert any("line.gc:6  error = x @ w + b - y" in line for line in lines)


@pytest.mark.ci
def test_a_profile_shows_only_what_is_asked_for(folder: Path, call: Call) -> None:
    out = call("profile", "line.gc", "--steps", 2, "--by", "kernel", "--top", 1).out
    assert "by op" not in out and "more: --top)" in out


def test_json_is_one_line_with_all_tables_and_a_trace_may_be_written_too(
    folder: Path, call: Call
) -> None:
    done = call("profile", "line.gc", "--steps", 2, "--json", "--trace", "t.json")
    found = json.loads(done.out)
    assert found["strategy"] == "mirrored(2)"
    assert found["kernel"] and found["line"][0]["file"] == "line.gc"
    assert "wrote t.json" in done.err
    events = json.loads(Path("t.json").read_text())["traceEvents"]
    assert [x["name"] for x in events if x.get("cat") == "step"].count("step 1") == 3


def test_a_training_is_traced_and_ends_as_it_would_have(folder: Path, call: Call) -> None:
    options = "--steps", 5, "--json"
    plain = json.loads(call("run", "line.gc", *options).out)
    done = call("run", "line.gc", *options, "--trace", "t.json", "--trace-steps", 2)
    assert json.loads(done.out)["params_sha256"] == plain["params_sha256"]
    events = json.loads(Path("t.json").read_text())["traceEvents"]
    assert {x["name"] for x in events if x.get("cat") == "step"} == {"step 2", "step 3"}


@pytest.mark.ci
def test_one_step_is_too_few_for_a_trace(folder: Path, call: Call) -> None:
    done = call("run", "line.gc", "--steps", 1, "--trace", "t.json")
    assert done.status == 0 and "t.json is not written: fewer than two steps" in done.err
    assert not Path("t.json").exists()


def test_where_no_trace_can_be_written_nothing_is_trained(folder: Path, call: Call) -> None:
    for command in ("run", "profile"):
        done = call(command, "line.gc", "--trace", "missing/t.json")
        assert done.status == 1 and "G0512" in done.err and not done.out


@pytest.mark.ci
def test_what_can_not_be_profiled_is_refused(folder: Path, call: Call) -> None:
    workers = "--strategy", "parameter_server(2, 1, staleness=2)"
    for command in (("profile", "line.gc"), ("run", "line.gc", "--trace", "t.json")):
        done = call(*command, *workers)
        assert done.status == 1 and "error[G0861]" in done.err
    assert call("profile", "line.gc", "--by", "colour").status == 2


@pytest.mark.ci
def test_a_program_without_data_has_no_profile(folder: Path, call: Call) -> None:
    lines = [x for x in Path("line.gc").read_text().splitlines() if not x.startswith("data")]
    Path("bare.gc").write_text("\n".join(["const batch = 8", *lines, ""]))
    done = call("profile", "bare.gc")
    assert done.status == 1 and "names no data to train on" in done.err


def test_calibrate_keeps_what_the_machine_can_do(
    folder: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphc.runtime.profiling import limits

    monkeypatch.setattr(limits, "cache_folder", lambda: folder / "cache")
    done = call("calibrate")
    assert done.status == 0 and "multiply-adds in f32" in done.out and "wrote " in done.out
    assert "measured quickly" not in call("profile", "line.gc", "--steps", 2).out


def test_a_backend_that_measures_nothing_is_refused(folder: Path, call: Call) -> None:
    done = call("calibrate", "--backend", "reference")
    assert done.status == 1 and "error[G0862]" in done.err
