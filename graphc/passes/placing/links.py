"""What a byte costs that is sent over a link, compared with one in the memory of a process.

    memory    1   a device reads where the others have written: 10 to 30 GB/s
    host      8   through shared memory between processes: written, read and written once more, and
                  two processes to be woken. On two cores, an all_reduce of 4 MB over 4 ranks
                  took 1.2 ms between threads, and 2.3 ms between processes of Open MPI 5; one of
                  1 KB between two processes 40 us
    network  32   10 to 25 Gbit/s for all devices of a host together: 0.5 GB/s for each of a few

Only their order matters much: a choice between two axes is rarely close. The latency of a
collective is dearer by as much as its bytes are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from graphc.ir.placement import Link, Mesh

PRICES: Mapping[Link, float] = {"memory": 1.0, "host": 8.0, "network": 32.0}


def price(mesh: Mesh, axes: Iterable[str]) -> float:
    """What a byte costs that a collective over these axes sends: that of their slowest link."""
    return PRICES[mesh.link(axes)]
