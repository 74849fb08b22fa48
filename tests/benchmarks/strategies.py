"""Two replicas beside those of other frameworks: python tests/benchmarks/strategies.py

    pip install . jax torch tensorflow && python tests/benchmarks/strategies.py

Runs steps of two workloads with two replicas: graphc's strategies, torch's DDP and FSDP2 over gloo,
JAX's shard_map, and TensorFlow's Mirrored-, CentralStorage- and ParameterServerStrategy, whichever
are installed. All take the same batches, and have two cores in all. They take turns, and only one
runs at a time. Printed are the median milliseconds of a step, and graphc's time over each other's:
`*` marks the strategy that is of the other's kind, `!` a ratio above the goal. Losses that are not
the same are told, and what a framework cannot do.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib import import_module
from importlib.util import find_spec
from itertools import cycle

from replicas import COUNT, SPREADS
from turns import CHECKED, Runner, apart, asked, environment, say, start, take_turns, timed
from workloads import WORKLOADS

GOALS = {"mlp": 0.8, "transformer": 0.9}  # graphc's time over another's


def work(system: str, workload: str) -> None:
    """Answers each line of the input, a number of steps, with what was measured."""
    batches = cycle(WORKLOADS[workload]().batches)
    import_module(SPREADS[system].module)
    made = SPREADS[system].make(workload)
    made.announce(CHECKED)
    say({"losses": [made.step(next(batches)) for _ in range(CHECKED)]})
    for count in asked():
        made.announce(count)
        say(timed(made.step, batches, count))


def measure(workload: str, args: argparse.Namespace) -> list[Runner]:
    """All systems on one workload, in turn."""
    with ExitStack() as stack:
        runners = list[Runner | None]()
        for s in args.systems:
            if find_spec(SPREADS[s].module.partition(".")[0]) is not None:
                command = [__file__, "--work", s, workload]
                env = environment(COUNT) | SPREADS[s].environment
                runners.append(start(s, command, stack, env))
        return take_turns([r for r in runners if r], args.seconds / args.rounds, args.rounds)


def table(workload: str, runners: Sequence[Runner]) -> Iterator[str]:
    """A column for each peer, a line for each strategy of graphc."""
    ours = [r for r in runners if r.system.startswith("graphc ")]
    peers = [r for r in runners if r not in ours]
    yield f"{workload:30}{'ms':>8}" + "".join(f"{p.system:>20}" for p in peers)
    yield " " * 38 + "".join(f"{p.median() * 1e3:17.2f} ms" for p in peers)
    for r in ours:
        line = f"{r.system:30}{r.median() * 1e3:8.2f}"
        yield line + "".join(f"{_ratio(r, p, GOALS[workload]):>20}" for p in peers)
    yield from _notes(runners)
    yield ""


def _ratio(mine: Runner, peer: Runner, goal: float) -> str:
    ratio = mine.median() / peer.median()
    alike = mine.system == f"graphc {SPREADS[peer.system].like}"
    return f"{ratio:.2f}{'!' if ratio > goal else ' '}{'*' if alike else ' '}"


def _notes(runners: Sequence[Runner]) -> Iterator[str]:
    right = runners[0].ready["losses"]
    for r in runners:
        if SPREADS[r.system].note:
            yield f"  {r.system}: {SPREADS[r.system].note}"
        if apart(r.ready["losses"], right):
            yield f"  {r.system}: other losses than {runners[0].system}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each system on a workload")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--systems", nargs="*", choices=SPREADS, default=list(SPREADS))
    parser.add_argument("--workloads", nargs="*", choices=GOALS, default=list(GOALS))
    args = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-COUNT:])
    if args.work:
        work(*args.work)
        return
    for workload in args.workloads:
        found = measure(workload, args)
        print(
            "\n".join(table(workload, found)) if found else f"{workload}: nothing ran", flush=True
        )


if __name__ == "__main__":
    main()
