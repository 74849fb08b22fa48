"""The benchmark's program, without a GPU: what it measures then means nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gpu.work import beyond_ceilings, bytes_moved, flops

from graphc.support.units import time_text

SCRIPT = Path(__file__).with_name("benchmark.py")


def run(*args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "--stand-in", "--small", "--systems", "graphc"]
    done = subprocess.run([*command, *map(str, args)], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stdout + done.stderr
    return done


@pytest.mark.ci
def test_rows_are_printed_and_written(tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    done = run("--only", "tiny", "gpt", "--seconds", 0.1, "--total", 120, "--json", file)
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())
    assert found["gpu"] == "NONE: the stand-in" and found["versions"]["numpy"] == np.__version__
    assert set(found["ceilings"]) == {"f32", "bytes"}
    for row, line in zip(found["rows"], done.stdout.splitlines()[-2:], strict=True):
        assert not row["failed"] and len(row["losses"]["graphc"]) == 5
        assert line.split()[0] == row["workload"]
        assert time_text(row["seconds"]["graphc"]) in line


@pytest.mark.ci
def test_a_row_that_runs_out_of_time_does_not_end_the_table() -> None:
    done = run("--only", "gpt", "tiny", "--total", 0.01, "--floor", 0.1)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("graphc failed: it did not answer") == 2


@pytest.mark.slow
def test_every_row_runs() -> None:
    done = run("--seconds", 0.1, "--total", 400)
    assert done.returncode == 0 and "failed" not in done.stdout + done.stderr, done.stdout


def test_work_is_counted_from_shapes() -> None:
    import benchmarks.workloads as made

    tiny = made.tiny()
    assert flops("tiny", tiny) == 4 * 32 * 10  # the batch has no gradient
    assert bytes_moved(tiny) == 2 * 4 * (10 + 1)
    few = made.Sizes(width=32, blocks=1, heads=2, letters=50, length=16, texts=2)
    gpt = made.gpt(few)
    products = 12 * 32 * 32 + 50 * 32
    assert flops("gpt", gpt) == 6 * 32 * products + 6 * 2 * 32 * 16 * 32


def test_a_share_above_the_ceiling_is_told() -> None:
    assert not list(beyond_ceilings({"flops": 0.5, "bytes": 0.9})) + list(beyond_ceilings({}))
    (told,) = beyond_ceilings({"flops": 71.0, "bytes": 0.1})
    assert told.startswith("the share of flops is above 100%")
