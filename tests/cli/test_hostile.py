"""Hostile command lines end in a status that is documented, and never in a traceback."""

from __future__ import annotations

import io
import re
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest
from cli.hostile import files, line

from graphc.cli import main

LINES, SLOW = 60, 2_000
STATUSES = {0, 1, 2}


def ended(words: list[str], folder: Path) -> int:
    """The status of a command line, run here with streams as a terminal of UTF-8 has them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["graphc", *words])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"step s(x: f32[2]) {}\n")))
        out, err = io.BytesIO(), io.BytesIO()
        patch.setattr(sys, "stdout", io.TextIOWrapper(out, "utf-8", "strict"))
        patch.setattr(sys, "stderr", io.TextIOWrapper(err, "utf-8", "backslashreplace"))
        with pytest.raises(SystemExit) as stop:
            main()
        sys.stdout.flush()
        sys.stderr.flush()
        told, printed = err.getvalue().decode(), out.getvalue().decode()
    status = stop.value.code or 0
    where = f"graphc {words}: status {status}\n{told}"
    assert status in STATUSES and "Traceback" not in told and "error[G0999]" not in told, where
    assert "\x1b[2J" not in told + printed, where
    assert status == 0 or re.search(
        r"^(error\[G\d{4}\]|Error): |^(FAIL|NaN )|^would format|^Usage: ",
        told + printed,
        re.M,
    ), where
    assert not (folder / "graphc-crash.txt").exists(), where
    return int(status)


def check(first: int, last: int, folder: Path) -> Counter[int]:
    made = folder / "made"
    found: Counter[int] = Counter()
    files(folder)
    ended(["compile", "line.gc", "-o", "line.plan"], folder)
    ended(["show", "line.gc", "--after", "source", "-o", "line.gir"], folder)
    ended(["run", "line.gc", "--quiet", "--steps", "1", "--save", "line.safetensors"], folder)
    for seed in range(first, last):
        shutil.copytree(folder, made, symlinks=True, ignore=lambda *_: ["made", "closed"])
        found[ended(line(seed), made)] += 1
        shutil.rmtree(made)
    return found


def test_hostile_command_lines_end_in_a_message(folder: Path) -> None:
    assert check(0, LINES, folder).keys() == STATUSES


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_two_thousand_hostile_command_lines(folder: Path) -> None:
    check(LINES, SLOW, folder)
