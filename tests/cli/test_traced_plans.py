"""A step that was traced in Python predicts as a plan, on the command line, without its source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.layers import Dense, Sequential
from graphc.support.errors import GraphcError

Call = Callable[..., Any]
X = np.random.default_rng(0).standard_normal((40, 3), np.float32)
BATCHES = [{"x": X[i : i + 16], "y": X[i : i + 16, 0]} for i in (0, 16)]


def loss_fn(model, batch):  # type: ignore[no-untyped-def]
    h = model(batch["x"])[:, 0]
    graphc.report("found", h)
    return np.mean((h - batch["y"]) ** 2)


def test_a_plan_of_a_traced_step_predicts_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    monkeypatch.chdir(tmp_path)
    model, adam = Sequential(Dense(3, 4), np.tanh, Dense(4, 1)), graphc.optim.adam(0.1)
    with graphc.compile(
        loss_fn, model, BATCHES[0], optimizer=adam, strategy="zero(2, stage=3)"
    ) as trainer:
        trainer.fit(BATCHES, epochs=2)
        trainer.to_plan("step.plan")
        trainer.save("weights.safetensors")
        wanted = trainer.predict([{"x": X[:16]}, {"x": X[16:32]}, {"x": X[32:]}])["found"]
        with pytest.raises(GraphcError, match="G0507"):
            trainer.to_plan("no/such/folder/step.plan")
    np.savez("new.npz", x=X)
    args = ["--load", "weights.safetensors", "--data", "new.npz", "-o", "found.npz"]
    assert call("predict", "step.plan", *args).status == 0
    with np.load("found.npz") as found:
        assert np.array_equal(found["found"], wanted)
