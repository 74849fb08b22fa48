"""The table of where a step's time goes."""

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "calls.py"


def test_every_call_is_timed_on_each_thread_and_counted():
    command = [sys.executable, str(SCRIPT), "tiny", "--steps", "4"]
    command += ["--threads", "2", "--strategy", "mirrored(2) * accumulate(2)"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    products = re.findall(r"^(?: +\d+\.\d){4} +(.*)  product .*einsum(?:,|$)", out, re.MULTILINE)
    assert products == ["1.00", "1.00"], out  # the turns are unrolled: each has its calls
    assert re.search(r"^(?: +\d+\.\d){4} +all$", out, re.MULTILINE), out
