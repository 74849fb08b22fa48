"""`trainer.why` answers for a traced step what `graphc why` answers for a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import graphc
from graphc.support.errors import GraphcError

BATCH = {"x": np.ones((8, 3), np.float32), "y": np.ones(8, np.float32)}


def compiled(strategy: str) -> graphc.StepTrainer:
    def loss_fn(params, batch):  # type: ignore[no-untyped-def]
        return np.mean((batch["x"] @ params["w"] - batch["y"]) ** 2)

    params = {"w": np.zeros(3, np.float32)}
    sgd = graphc.optim.sgd(0.1)
    return graphc.compile(loss_fn, params, BATCH, optimizer=sgd, strategy=strategy)


def test_a_trainer_says_what_each_collective_is_for() -> None:
    with compiled("mirrored(2)") as trainer:
        listed, one = str(trainer.why()), trainer.why("all_reduce")
        sent = trainer.trainer.plan.sent_bytes
    assert f"{sent:,} bytes are sent by each device in a step" in listed
    assert listed.count("all_reduce") == 2 and f"{Path(__file__).name}:" in listed
    assert len(one.names) == 2 and "the sum over all of data" in repr(one)
    assert [x["inserted"] for x in one.as_json()] == [True, True]


def test_one_node_is_asked_for_in_python() -> None:
    with compiled("mirrored(2)") as trainer:
        many = str(trainer.why("*"))
        assert 'nodes; trainer.why("%NAME") explains one' in many
        with pytest.raises(GraphcError, match="no node or op 'nonsense'"):
            trainer.why("nonsense")
        with pytest.raises(GraphcError, match="G0990"):
            trainer.why(program="nonsense")


def test_without_devices_nothing_is_sent() -> None:
    with compiled("one_device()") as trainer:
        assert "bytes are sent" not in str(trainer.why())
