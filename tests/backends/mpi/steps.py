"""A job that trains a small model under several strategies, and prints what came out, by process.

steps.py TRANSPORT STRATEGY...
steps.py TRANSPORT wrong K      process K gets an index out of range in its part of a batch
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from runtime.test_processes import batch, plan

from graphc.runtime.trainer import Trainer
from graphc.support.errors import GraphcError


def hashed(strategy: str) -> str:
    with Trainer(plan(strategy), transport=sys.argv[1]) as trainer:
        losses = [trainer.step(batch(k, n))["loss"] for k, n in enumerate((16, 16, 11, 16))]
        values = sorted((k, v.tobytes()) for k, v in trainer.variables().items())
    return hashlib.sha256(repr((losses, values)).encode()).hexdigest()


def wrong(process: int) -> list[object]:
    with Trainer(plan("mirrored(4)"), transport=sys.argv[1]) as trainer:
        processes = trainer.processes
        trainer.step(batch(0))
        second, text = batch(1), ""
        second["label"][processes.index * 16 // processes.count] = (
            99 if processes.index == process else 0
        )
        try:
            trainer.step(second)
        except GraphcError as error:
            text = error.code
        trainer.step(batch(2))
        return [text, trainer.steps, trainer.params_sha256()]


if __name__ == "__main__":
    _, _, *given = sys.argv
    found = wrong(int(given[1])) if given[0] == "wrong" else [*map(hashed, given)]
    sys.stdout.write(f"{json.dumps(found)}\n")  # at once: others print to the same pipe
