"""Threads that make batches end when the program does: at its end, and at Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

START = """
import threading, time
import numpy as np
from graphc import data

def slow(batch):
    time.sleep(0.05)
    return batch

batches = data.arrays({"i": np.arange(10_000)}).batches(4).map(slow).prefetch(3, workers=2)
"""

INTERRUPTED = """
try:
    for number, batch in enumerate(batches):
        if number == 3:
            print("ready", flush=True)
except KeyboardInterrupt:
    time.sleep(0.5)
    left = [t for t in threading.enumerate() if t.name.startswith("graphc-data")]
    print("ended", batches.position.example >= 16, left, flush=True)
"""

OPEN_AT_THE_END = """
iterator = iter(batches)
next(iterator)
print("ready", flush=True)
"""


def started(script: str) -> subprocess.Popen[str]:
    child = subprocess.Popen([sys.executable, "-c", START + script], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    return child


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal")
def test_ctrl_c_ends_the_pass_and_its_threads() -> None:
    child = started(INTERRUPTED)
    time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert (out, err, child.returncode) == ("ended True []\n", "", 0)


def test_a_program_ends_with_a_pass_that_is_open() -> None:
    child = started(OPEN_AT_THE_END)
    out, err = child.communicate(timeout=30)
    assert (out, err, child.returncode) == ("", "", 0)
