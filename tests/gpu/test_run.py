"""The program that runs the tests on a GPU: a test that breaks its process costs no other one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("run.py")
CASES = """
import os, time
import pytest
from gpu.rows import row

pytestmark = pytest.mark.gpu
broken = []

@pytest.mark.parametrize("k", range(3))
def test_context(k):
    row(f"case {k}", "came")
    if k == 1:
        broken.append(k)  # as an illegal address breaks the context
    assert not broken, "the GPU is lost"

@pytest.mark.parametrize("k", range(2))
def test_crash(k):
    if k == 0:
        os._exit(7)

def test_hang():
    time.sleep(1000)

@pytest.mark.alone
def test_skipped():
    pytest.skip("nothing is there")
"""


def run(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "--root", str(folder), *more]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.ci
def test_what_fails_fails_by_itself_and_the_table_is_printed(tmp_path: Path) -> None:
    (tmp_path / "test_cases.py").write_text(CASES)
    done = run(tmp_path, "--limit", "40")
    assert done.returncode == 1, done.stderr
    last = done.stdout.strip().splitlines()[-1]
    assert last == "3 passed, 1 failed, 2 did not end, 1 skipped", done.stdout
    assert re.search(r"^failed: \S+test_context\[1\]\n.*the GPU is lost", done.stdout, re.MULTILINE)
    assert re.search(r"^did not end: \S+test_hang\n +it was ended after 40 s", done.stdout, re.M)
    assert re.search(r"^did not end: \S+test_crash\[0\]\n.* status 7", done.stdout, re.MULTILINE)
    assert re.findall(r"^case (\d)  came$", done.stdout, re.MULTILINE) == list("012")
    assert "skipped: nothing is there" in done.stdout


@pytest.mark.slow
def test_it_runs_the_tests_of_the_gpu() -> None:
    command = [sys.executable, str(SCRIPT), "--stand-in", "-k", "map or leaves"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a kernel that negates  right" in done.stdout and done.stdout.endswith("2 passed\n")
