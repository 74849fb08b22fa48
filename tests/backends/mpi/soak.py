"""A job that trains many steps, and prints how its memory, threads and files have grown."""

from __future__ import annotations

import gc
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


def grown(trainer: Trainer, steps: int) -> dict[str, int]:
    """What so many steps add, after some that fill caches."""
    batches = [batch(k, n) for k, n in enumerate((16, 11, 16))]
    for k in range(steps // 5):
        trainer.step(batches[k % 3])
    gc.collect()  # what an earlier trainer held may be freed at any time
    before = taken()
    for k in range(steps):
        trainer.step(batches[k % 3])
    after = taken()
    return {name: after[name] - before[name] for name in before}


def main(steps: int) -> None:
    """Half of the steps with two devices in each process, as a user makes them; the other half with
    one, as `fit` does."""
    with Trainer(plan("zero(4, stage=2) * reproducible(4)"), transport="mpi") as trainer:
        print(json.dumps(grown(trainer, steps // 2)), flush=True)
    with Trainer(plan("zero(2, stage=2)"), transport="mpi") as trainer:
        with trainer.engine.stopping:
            found = grown(trainer, steps // 2)
            assert trainer.engine._fast_paths["train"].done >= steps // 2, "not on the fast path"
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
