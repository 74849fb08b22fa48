"""A run on Ray with a batch that does not fit, and one after it: python failing_run.py"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from killed_run import BATCH, data, plan

from graphc.runtime.trainer import Trainer
from graphc.support.errors import GraphcError


def main() -> dict[str, Any]:
    good = list(data(30).batches(BATCH))
    bad = {"x": np.zeros((BATCH, 5), np.float32), "y": good[0]["y"]}
    with Trainer(plan(), driver="ray") as trainer:
        try:
            trainer.fit_stream([*good[:4], bad, *good])
        except GraphcError as error:
            before, counted = trainer.steps, int(trainer.variables()["step"])
            trainer.fit_stream(good[:3])
            return {
                "code": error.code,
                "message": error.message,
                "notes": error.__notes__,
                "before": before,
                "counted": counted,
                "after": int(trainer.variables()["step"]),
            }
    raise AssertionError("nothing failed")


if __name__ == "__main__":
    print(json.dumps(main()), flush=True)
