"""What a profile shows, and to whom it is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import graphc
from graphc.cli.given_step import GivenStep, plan_of
from graphc.cli.profile import batches_of
from graphc.runtime.backends import plugins
from graphc.runtime.profiling.profile import Profile
from graphc.runtime.profiling.tables import in_words
from graphc.runtime.trainer import Trainer
from graphc.support.errors import GraphcError

EXAMPLES = Path(__file__).parents[3] / "examples"


def profile_of(example: str, strategy: str, steps: int = 4, **how: object) -> Profile:
    plan = plan_of(GivenStep(EXAMPLES / f"{example}.gc", strategy))
    with Trainer(plan, **how) as trainer:  # type: ignore[arg-type]
        return trainer.profile(batches_of(plan), steps)


def test_profiling_leaves_the_trainer_where_it_is() -> None:
    plan = plan_of(GivenStep(EXAMPLES / "linear.gc", "mirrored(2)"))
    with Trainer(plan) as trainer:
        batch = next(iter(batches_of(plan)))
        trainer.step(batch)
        before = trainer.params_sha256()
        trainer.profile([batch], 2)
        assert (trainer.params_sha256(), trainer.steps) == (before, 1)


def test_a_python_step_is_profiled_by_its_own_lines() -> None:
    def loss(params: dict[str, np.ndarray], batch: dict[str, np.ndarray]) -> np.ndarray:
        return np.mean((batch["x"] @ params["w"] - batch["y"]) ** 2)  # the line

    batch = {"x": np.ones((8, 3), np.float32), "y": np.ones(8, np.float32)}
    params = {"w": np.zeros(3, np.float32)}
    sgd = graphc.optim.sgd(0.1)
    with graphc.compile(loss, params, batch, optimizer=sgd, strategy="mirrored(2)") as trainer:
        found = trainer.profile([batch], steps=3)
    labels = [row.label for row in found.rows("line")]
    assert any(label.endswith("# the line") for label in labels)
    assert "waiting for other threads" in str(found)


def test_the_meeting_of_replicas_is_profiled_apart_from_steps_and_with_its_share_of_them() -> None:
    found = profile_of("linear", "local_sgd(2, every=2)", steps=6)
    assert [s.number % 2 for s in found.faster].count(0) == 2 == len(found.faster) / 2
    sent = {row.label: row.sent for row in found.rows("collective")}
    assert sent["replica_sum.data"] == 4 and sent["replica_sum.data (sync)"] == 40
    labels = {row.label for row in found.rows("node")}
    assert {"replica_sum.data", "replica_sum.data (sync)"} <= labels


def test_steps_of_numpy_calls_are_profiled_too() -> None:
    backend = replace(plugins.backend("numpy"), native=False)  # type: ignore[type-var]
    found = profile_of("linear", "mirrored(2)", backend=backend)
    assert found.info["executor"] == "numpy"
    rows = {row.label.split()[1]: row for row in found.rows("kernel") if row.runs}
    assert rows["einsum"].runs in (2, 4) and rows["feed"].runs == 2
    assert any(row.sent for row in found.rows("collective"))


def test_the_most_expensive_rows_come_first_and_the_others_are_counted() -> None:
    found = profile_of("linear", "mirrored(2)")
    rows = found.rows("kernel")[:-2]
    assert [r.seconds for r in rows] == sorted((r.seconds for r in rows), reverse=True)
    text = in_words(found, ["kernel"], 2)
    assert f"({len(rows) - 2} more: --top)" in text and "by op" not in text


def test_json_has_every_table() -> None:
    found = json.loads(json.dumps(profile_of("linear", "mirrored(2)").as_json()))
    assert found["steps"] == 4 and found["devices"] == 2 and len(found["step_seconds_each"]) == 4
    for by in ("line", "op", "kernel", "collective"):
        assert found[by][0].keys() >= {"label", "seconds", "share", "waiting", "nodes"}


def test_a_strategy_of_workers_and_servers_is_refused() -> None:
    with pytest.raises(GraphcError, match="workers and servers") as caught:
        profile_of("linear", "parameter_server(2, 1, staleness=2)")
    assert caught.value.code == "G0861"


def test_a_backend_that_records_nothing_is_refused() -> None:
    with pytest.raises(GraphcError, match="'reference' does not record") as caught:
        profile_of("linear", "mirrored(2)", backend="reference")
    assert caught.value.code == "G0861"


def test_there_must_be_a_batch() -> None:
    plan = plan_of(GivenStep(EXAMPLES / "linear.gc", "mirrored(2)"))
    with Trainer(plan) as trainer, pytest.raises(GraphcError, match="no batch") as caught:
        trainer.profile([])
    assert caught.value.code == "G0606"


def test_a_collective_sends_what_the_plan_says() -> None:
    found = profile_of("linear", "mirrored(2) * accumulate(2)", 2)
    plan = plan_of(GivenStep(EXAMPLES / "linear.gc", "mirrored(2) * accumulate(2)"))
    assert sum(row.sent for row in found.rows("collective")) == plan.training.sent_bytes


def test_one_thread_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    from graphc_numpy.native.threads import pool

    for module in (pool, __import__("graphc_numpy.native.fast_path", fromlist=["x"])):
        monkeypatch.setattr(module, "all_threads", lambda: 1)
    found = profile_of("linear", "mirrored(3)")
    (waiting,) = [r for r in found.rows("kernel") if r.label == "waiting for other threads"]
    assert found.threads == 1 and waiting.share < 0.05  # clocks were read
