"""A job that trains many steps, and prints how its memory, threads and files have grown."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from runtime.test_processes import batch, plan

from graphc.runtime.trainer import Trainer


def taken() -> dict[str, int]:
    """Bytes of resident memory, threads, open files."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    files = len(os.listdir("/proc/self/fd"))
    return {"bytes": pages * 4096, "threads": threading.active_count(), "files": files}


def main(steps: int) -> None:
    with Trainer(plan("zero(4, stage=2) * reproducible(4)"), transport="mpi") as trainer:
        batches = [batch(k, n) for k, n in enumerate((16, 11, 16))]
        for k in range(steps // 5):
            trainer.step(batches[k % 3])
        before = taken()
        for k in range(steps):
            trainer.step(batches[k % 3])
        after = taken()
    print(json.dumps({name: after[name] - before[name] for name in before}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
