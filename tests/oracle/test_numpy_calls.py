"""What NumPy's own tests ask of functions that graphc traces, asked of machine code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SUITES = [
    "_core.tests.test_umath", "_core.tests.test_einsum", "_core.tests.test_shape_base",
    "lib.tests.test_nanfunctions", "lib.tests.test_shape_base", "lib.tests.test_twodim_base",
    "lib.tests.test_arraysetops", "lib.tests.test_arraypad", "lib.tests.test_index_tricks",
    "linalg.tests.test_linalg",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("suite", SUITES)
def test_calls_of_numpys_own_tests_have_its_results(suite: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "oracle.recorded_calls", "-p",
         "no:cacheprovider", "-c", os.devnull, "--rootdir", str(tmp_path),
         "--pyargs", f"numpy.{suite}"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    counts = dict(re.findall(r"\| ([^|]+) (\d+)(?=\s)", ended.stdout))
    assert int(counts.get("compared, whole", 0)) > 20, ended.stdout[-3000:] + ended.stderr[-2000:]
    assert not {k for k in counts if k.startswith("differ")}, ended.stdout[-5000:]
