"""A job whose messages have at most a few bytes, and which prints a hash of what it exchanged.

long_messages.py BYTES
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from graphc_mpi.bridge import MpiBridge
from runtime import calls

from graphc.ir.orders import Order
from graphc.runtime.transports.process_session import ProcessSession

GROUP = (0, 1, 2, 3)
ENTRIES = (7, 5_001, 300_007)  # sent at once, kept in memory of its own, and in parts


def exchanged(comm: Any) -> bytes:
    """Sums and a gathering, twice each: the second time uses what the first one has left."""
    found = b""
    for entries in ENTRIES * 2:
        x = np.random.default_rng(comm.rank).standard_normal(entries).astype(np.float32)
        for order in (Order.ADD_N, Order.TREE):
            found += calls.all_reduce(comm, x, "sum", GROUP, order).tobytes()
        found += calls.all_gather(comm, x, GROUP, 0, (entries,) * 4, 4 * entries).tobytes()
    return found


def main(largest: int) -> None:
    bridge = MpiBridge(largest, shares_memory=False)
    with ProcessSession(4, bridge) as session:
        hashes = {hashlib.sha256(x).hexdigest() for x in session.run(exchanged)}
        every = session.processes.all_gather(b"x" * 3 * largest)
    assert all(x == b"x" * 3 * largest for x in every)
    sys.stdout.write(f"{sorted(hashes)}\n".replace("'", '"'))


if __name__ == "__main__":
    main(int(sys.argv[1]))
