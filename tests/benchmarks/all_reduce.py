"""Times the all-reduce of the mpi transport beside MPI's own, by turns, and prints their ratio.

    mpiexec -n 4 python tests/benchmarks/all_reduce.py [BYTES [ROUNDS]]

Each process has one device. A round is some calls of one, then as many of the other; the best round
of each counts, since whatever else the machine does can only slow them. BYTES is what one device
adds: 57,672 by default, the gradients of examples/digits.gc.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from graphc_mpi.bridge import MpiBridge
from mpi4py import MPI

from graphc.ir.collectives import Collective
from graphc.ir.orders import Order
from graphc.ir.placement import Partial, R
from graphc.runtime.transports.process_session import ProcessSession
from graphc.runtime.transports.transport import CollectiveCall

BYTES, ROUNDS, CALLS = 57_672, 1000, 4


def best(ways: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The least microseconds that a call takes, of each way, by turns."""
    found = dict.fromkeys(ways, np.inf)
    for _ in range(rounds):
        for name, call in ways.items():
            MPI.COMM_WORLD.Barrier()
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            found[name] = min(found[name], (time.perf_counter() - start) / CALLS * 1e6)
    return found


def measured(comm: Any, size: int, rounds: int) -> dict[str, float]:
    x = np.random.default_rng(comm.rank).standard_normal(size // 4).astype(np.float32)
    out, theirs = np.empty_like(x), np.empty_like(x)
    group = tuple(range(comm.size))
    ways: dict[str, Callable[[], object]] = {
        "mpi": lambda: MPI.COMM_WORLD.Allreduce(x, theirs, MPI.SUM)
    }
    for order in (Order.ADD_N, Order.TREE):
        call = CollectiveCall(Collective(Partial("sum"), R, order), group)
        ways[order.name.lower()] = lambda call=call: comm.start(call, x, out).wait()  # type: ignore[misc]
    return best(ways, rounds)


def main(size: int = BYTES, rounds: int = ROUNDS) -> None:
    bridge = MpiBridge()
    with ProcessSession(bridge.count, bridge) as session:
        (found,) = session.run(lambda comm: measured(comm, size, rounds))
        every = session.processes.all_gather(json.dumps(found).encode())
    if bridge.index == 0:
        times = [json.loads(x) for x in every]
        us = {name: max(t[name] for t in times) for name in found}
        ratios = {name: round(x / us["mpi"], 2) for name, x in us.items()}
        sys.stdout.write(
            json.dumps({"us": {k: round(x, 1) for k, x in us.items()}} | ratios) + "\n"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
