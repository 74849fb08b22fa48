"""Processes that take turns in being measured, so that a machine that is busy slows all of them.

A process that waits for its turn is stopped: no thread of it spins.
"""

from __future__ import annotations

import compileall
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from statistics import median
from tempfile import TemporaryFile
from threading import Timer
from typing import Any

CHECKED = 5  # steps whose losses are compared
CLOSE = 1e-3  # relative
LIMIT = 180.0  # seconds after which a process that has not answered is ended


@dataclass
class Runner:
    """A process, and those that it starts: what it said when it was ready, and of each round."""

    system: str
    process: subprocess.Popen[str]
    limit: float = LIMIT
    ready: Mapping[str, Any] = field(default_factory=dict)
    rounds: list[Mapping[str, Any]] = field(default_factory=list)

    def ask(self, line: str = "") -> Mapping[str, Any] | None:
        """The answer to a line; None where the process failed."""
        assert self.process.stdin and self.process.stdout
        limit = Timer(self.limit, self.end)
        limit.start()
        try:
            os.killpg(self.process.pid, signal.SIGCONT)
            self.process.stdin.write(line)
            self.process.stdin.flush()
            found = dict(json.loads(self.process.stdout.readline()))
            os.killpg(self.process.pid, signal.SIGSTOP)
            return found
        except (BrokenPipeError, ProcessLookupError, ValueError):
            return None
        finally:
            limit.cancel()

    def end(self) -> None:
        """Kill the process and those that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def median(self, name: str = "seconds") -> float:
        """Of the rounds."""
        return median(r[name] for r in self.rounds)


def on_stderr(system: str, why: str) -> None:
    print(f"{system} failed: {why}", file=sys.stderr)


def start(
    system: str, command: Sequence[str], stack: ExitStack, more: Mapping[str, str],
    limit: float = LIMIT, failed: Callable[[str, str], None] = on_stderr,
) -> Runner | None:  # fmt: skip
    """A runner that is ready, with `more` in its environment; None if it failed, which is told.

    limit: seconds for each answer
    """
    pipe, env = subprocess.PIPE, os.environ | dict(more)
    errors = stack.enter_context(TemporaryFile("w+"))  # noqa: SIM115
    process = subprocess.Popen(
        [sys.executable, *command], stdin=pipe, stdout=pipe, stderr=errors,
        text=True, env=env, process_group=0,
    )  # fmt: skip
    runner = Runner(system, process, limit)
    stack.callback(runner.end)
    found = runner.ask()
    if found is None:
        errors.seek(0)
        lines = errors.read().strip().splitlines() or ["it did not answer"]
        last = next((line for line in lines if line.startswith("error[")), lines[-1])
        failed(system, last)
        return None
    runner.ready = found
    return runner


def environment(threads: int) -> dict[str, str]:
    """The words that make every system use so many threads."""
    names = ("OMP", "OPENBLAS", "MKL", "GRAPHC")
    counts = {f"{n}_NUM_THREADS": str(threads) for n in names}
    return counts | {"GRAPHC_THREADS": str(threads), "GRAPHC_CACHE": "0"}


def with_bytecode(*packages: str) -> None:
    """Compile the sources of packages to bytecode, as their installation does, so that no process
    that is measured does it."""
    for spec in filter(None, map(find_spec, packages)):
        compileall.compile_dir(Path(str(spec.origin)).parent, quiet=2)


def take_turns(runners: Sequence[Runner], seconds: float, rounds: int) -> list[Runner]:
    """Rounds of steps, each of about so many seconds of each runner; those that did not fail."""
    counts = {r.system: _steps(r, seconds) for r in runners}
    for _ in range(rounds):
        for r in runners:
            found = r.ask(f"{counts[r.system]}\n")
            if found:
                r.rounds.append(found)
    return [r for r in runners if r.rounds]


def _steps(runner: Runner, seconds: float) -> int:
    """How many steps fit into some seconds."""
    found = runner.ask("3\n")
    return max(3, min(3000, int(seconds / found["seconds"]))) if found else 3


# -- in the process -----------------------------------------------------------------------------------


def say(found: Mapping[str, Any]) -> None:
    """Answer a line."""
    print(json.dumps(found), flush=True)


def asked() -> Iterator[int]:
    """The numbers of steps that are asked for."""
    return (int(line) for line in sys.stdin)


def timed(step: Callable[[Any], object], batches: cycle[Any], count: int) -> dict[str, float]:
    """Medians of some steps: seconds, and seconds of the processor."""
    times, worked = list[float](), list[float]()
    for _ in range(count):
        batch, start, begin = next(batches), time.perf_counter(), time.process_time()
        step(batch)
        worked.append(time.process_time() - begin)
        times.append(time.perf_counter() - start)
    return {"seconds": median(times), "processor": median(worked)}


def apart(losses: Sequence[float], right: Sequence[float], close: float = CLOSE) -> bool:
    """Whether losses are not those of another system."""
    return any(abs(a - b) > close * abs(b) for a, b in zip(losses, right, strict=True))
