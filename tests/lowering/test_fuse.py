"""Groups of nodes that run together."""

from __future__ import annotations

from typing import Any

import numpy as np

import graphc
from graphc.lowering.lower import lower


def test_a_group_joins_another_only_where_nothing_must_run_between() -> None:
    """What a fold reads can't go with what reads it and the fold."""

    def loss(p: Any, b: Any) -> Any:
        w = p["w"]
        return np.sum(np.sin(np.mean(w, axis=0, keepdims=True) * w)) + np.mean(-w)

    sgd, w, x = graphc.optim.sgd(0.1), np.ones(2, np.float32), np.ones((2, 1), np.float32)
    how = {"optimizer": sgd, "strategy": "reproducible(3)"}
    with graphc.compile(loss, {"w": w}, {"x": x}, **how) as trainer:
        assert lower(trainer.trainer.plan.programs["train"]).parts
