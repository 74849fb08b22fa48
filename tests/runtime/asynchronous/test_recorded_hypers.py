"""Hyperparameters of recorded runs: a replay has the same ones, or is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.runtime.asynchronous.recordings import load, parse
from graphc.support.errors import GraphcError

pytestmark = pytest.mark.filterwarnings("ignore::graphc.support.errors.GraphcWarning")
STRATEGY = "parameter_server(2, 1, staleness=2)"


class SetBehindEpoch(graphc.callbacks.Callback):
    """Sets the rate behind the first epoch."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def on_epoch_end(self, epoch: int, metrics: dict[str, float]) -> None:
        if epoch == 1:
            self.setting.core.hyper["lr"] = self.rate


def batches() -> list[dict[str, Any]]:
    draw = np.random.default_rng(0).standard_normal
    return [{"x": draw((4, 3), np.float32), "y": draw(4, np.float32)} for _ in range(6)]


def sha(callbacks: Sequence[Any] = (), lr: float = 0.1, **paths: Path) -> str:
    def loss(params: Any, batch: Any) -> Any:
        return np.mean((batch["x"] @ params["w"] - batch["y"]) ** 2)

    sgd = graphc.optim.sgd(graphc.hyper("lr", 0.1))
    given, first = batches(), {"w": np.ones(3, np.float32)}
    with graphc.compile(loss, first, given[0], optimizer=sgd, strategy=STRATEGY) as trainer:
        trainer.hyper["lr"] = lr
        trainer.fit(given, epochs=2, callbacks=callbacks, progress=False, **paths)
        return trainer.params_sha256()


def refused(code: str, words: str, *args: Any, **options: Any) -> None:
    with pytest.raises(GraphcError, match=words) as caught:
        sha(*args, **options)
    assert caught.value.code == code


def test_a_replay_begins_with_the_rate_of_the_recording(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    assert sha(record=path) == sha(replay=path)
    words = 'of other hyperparameters: {"lr": 0.1}, but this run has {"lr": 0.2}'
    refused("G0522", words, lr=0.2, replay=path)


def test_a_rate_set_between_epochs_is_in_the_recording(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    once = sha([SetBehindEpoch(0.01)], record=path)
    assert once == sha([SetBehindEpoch(0.01)], replay=path)
    assert [(c.first, c.hyper) for c in load(path).changes] == [(6, {"lr": 0.01})]
    words = 'from push 6 on: {"lr": 0.01}, but this run has {"lr": 0.1}'
    refused("G0522", words, [SetBehindEpoch(0.1)], replay=path)
    for first in (3, 99):
        with pytest.raises(GraphcError, match="was changed after it was written"):
            parse(path.read_text().replace('"first": 6', f'"first": {first}'))


def test_a_rate_set_within_an_epoch_is_refused_where_pushes_are_recorded(tmp_path: Path) -> None:
    path, rates = tmp_path / "run.jsonl", [graphc.callbacks.LearningRate(lambda n: 0.1 / (1 + n))]
    refused("G0563", "'lr' can't be set while pushes are recorded", rates, record=path)
    assert load(path).entries[0].order == 0  # what was made is complete
    refused("G0563", "'lr' can't be set while pushes are replayed", rates, replay=path)
