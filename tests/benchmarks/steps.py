"""Step times beside other frameworks: python tests/benchmarks/steps.py

    pip install . jax torch && python tests/benchmarks/steps.py --threads 1

Runs each workload in graphc and in whatever else is installed, each in a process of its own that is
pinned to as many cores as it has threads. The processes take turns, so that a machine that is busy
slows all of them, and only one runs at a time. Printed are the median milliseconds of a step, graphc
over the best of the others, the seconds of the first step (with all compiling, without imports), and
the memory above that of the imports. Losses that disagree are told.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from itertools import cycle
from statistics import median
from typing import Any

from systems import SYSTEMS, installed
from workloads import WORKLOADS

CHECKED = 5  # steps whose losses are compared
CLOSE = 1e-3  # relative


# -- one system ---------------------------------------------------------------------------------------


def peak() -> float:
    """MiB of this process at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def work(system: str, workload: str, threads: int) -> None:
    """Answers each line of the input, a number of steps, with what was measured."""
    made = WORKLOADS[workload]()
    import_module(SYSTEMS[system].module)
    before = peak()
    start = time.perf_counter()
    step = SYSTEMS[system].make(made, threads)
    losses = [step(made.batches[0])]
    first = time.perf_counter() - start
    batches = cycle(made.batches[1:] + made.batches[:1])
    losses += [step(next(batches)) for _ in range(CHECKED - 1)]
    print(json.dumps({"first": first, "losses": [] if made.drawn else losses}), flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            batch, start = next(batches), time.perf_counter()
            step(batch)
            times.append(time.perf_counter() - start)
        print(json.dumps({"seconds": median(times), "memory": peak() - before}), flush=True)


# -- all of them --------------------------------------------------------------------------------------


@dataclass
class Runner:
    """One process, and what it measured."""

    system: str
    process: subprocess.Popen[str]
    first: float = 0.0
    losses: list[float] = field(default_factory=list)
    rounds: list[float] = field(default_factory=list)
    memory: float = 0.0

    def ask(self, line: str = "") -> Mapping[str, Any] | None:
        """The answer to a line; None where the process failed."""
        assert self.process.stdin and self.process.stdout
        try:
            self.process.stdin.write(line)
            self.process.stdin.flush()
            return dict(json.loads(self.process.stdout.readline()))
        except (BrokenPipeError, ValueError):
            return None


def start(system: str, workload: str, threads: int, stack: ExitStack) -> Runner | None:
    """A runner that is ready, or a line that says that it failed."""
    names = ("OMP", "OPENBLAS", "MKL", "GRAPHC")
    env = os.environ | {f"{n}_NUM_THREADS": str(threads) for n in names}
    env |= {"GRAPHC_THREADS": str(threads), "GRAPHC_CACHE": "0"}
    command = [sys.executable, __file__, "--work", system, workload, "--threads", str(threads)]
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere, text=True, env=env)
    stack.callback(process.kill)
    runner = Runner(system, process)
    found = runner.ask()
    if found is None:
        print(f"{workload}: {system} failed", file=sys.stderr)
        return None
    runner.first, runner.losses = found["first"], found["losses"]
    return runner


def measure(workload: str, args: argparse.Namespace) -> list[Runner]:
    """All systems on one workload, in turn."""
    with ExitStack() as stack:
        made = (start(s, workload, args.threads, stack) for s in args.systems if installed(s))
        runners = [r for r in made if r]
        counts = {r.system: _steps(r, args.seconds / args.rounds) for r in runners}
        for _ in range(args.rounds):
            for r in runners:
                found = r.ask(f"{counts[r.system]}\n")
                if found:
                    r.rounds.append(found["seconds"])
                    r.memory = found["memory"]
        return [r for r in runners if r.rounds]


def _steps(runner: Runner, seconds: float) -> int:
    """How many steps fit into some seconds."""
    found = runner.ask("3\n")
    return max(3, min(3000, int(seconds / found["seconds"]))) if found else 3


def rows(workload: str, runners: list[Runner]) -> Iterator[str]:
    """A line for each system."""
    times = {r.system: median(r.rounds) for r in runners}
    others = [t for s, t in times.items() if not s.startswith("graphc")]
    right = runners[0].losses
    for r in runners:
        t = times[r.system]
        ratio = f"{t / min(others):6.2f}" if others and r.system.startswith("graphc") else " " * 6
        far = any(abs(a - b) > CLOSE * abs(b) for a, b in zip(r.losses, right, strict=True))
        yield (
            f"{workload:20} {r.system:22} {t * 1e3:10.3f} {ratio} {r.first:8.2f} {r.memory:8.0f}"
            f"{'  other losses' if far else ''}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each system on a workload")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--systems", nargs="*", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--workloads", nargs="*", choices=WORKLOADS, default=list(WORKLOADS))
    args = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-args.threads :])
    if args.work:
        work(*args.work, args.threads)
        return
    print(f"{'workload':20} {'system':22} {'step ms':>10} {'ratio':>6} {'first s':>8} {'MiB':>8}")
    for workload in args.workloads:
        found = measure(workload, args)
        print("\n".join(rows(workload, found)) if found else f"{workload}: nothing ran", flush=True)


if __name__ == "__main__":
    main()
