"""A checkpoint knows no devices: what one strategy saved, every other one resumes."""

from __future__ import annotations

import random
import tracemalloc
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from laws.resume import BATCH, PROGRAM, Run, dataset, plan_of
from runtime.checkpoints.values import same

import graphc
from graphc.plan.plan import Plan
from graphc.runtime.checkpoints.saver import Checkpoints
from graphc.runtime.trainer import Trainer

FAMILIES = ("mirrored({})", "zero({}, stage=3)", "tensor_split({})", "diloco({}, every=3)",
            "parameter_server({}, 2)")  # fmt: skip
SETTINGS = [family.format(n) for family in FAMILIES for n in (1, 2, 4)]
PAIRS = [(a, b) for a, b in product(SETTINGS, SETTINGS)]
TEXT = PROGRAM.format(noise="h", optimizer="adam(0.05)", declared="", written="")


@cache
def plan(strategy: str) -> Plan:
    return plan_of(Run(TEXT, strategy, 0, None, 0, 0, False))


def train(trainer: Trainer, steps: int, where: Checkpoints | None = None) -> Any:
    return trainer.fit(dataset(), BATCH, steps=steps, checkpoint=where)


class Saved:
    """What each strategy saves after four steps, and the loss of its next step."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._found = folder, dict[str, tuple[dict[str, Any], float]]()

    def of(self, strategy: str) -> tuple[dict[str, Any], float]:
        if strategy not in self._found:
            with Trainer(plan(strategy), "reference") as trainer:
                train(trainer, 4, Checkpoints(self.folder / strategy))
                self._found[strategy] = trainer.variables(), train(trainer, 1)["loss"]
        return self._found[strategy]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    return Saved(tmp_path_factory.mktemp("saved"))


def check(saved: Saved, a: str, b: str) -> None:
    want, loss = saved.of(a)
    with Trainer(plan(b), "reference") as trainer:
        trainer.resume(saved.folder / a)
        assert (trainer.steps, trainer.position.example) == (4, 0)  # 29 examples, 8 at a time
        if a == b:
            train(trainer, 0)  # replicas that step alone meet at the end, as they did there
        found = trainer.variables()
        common = want.keys() & found.keys()
        assert {"w1", "w2", "t", "u", "level", "seen", "w1.m", "w1.v"} <= common
        if a == b or "diloco" not in b:
            assert all(same(found[name], want[name]) for name in common)
        if a == b:
            assert train(trainer, 1)["loss"] == loss
        elif "diloco" not in a + b:
            assert np.isclose(train(trainer, 1)["loss"], loss, rtol=1e-5)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("a", "b"), random.Random(0).sample(PAIRS, 12))
def test_what_one_strategy_saved_another_resumes(a: str, b: str, saved: Saved) -> None:
    check(saved, a, b)


@pytest.mark.slow
def test_what_any_strategy_saved_any_other_resumes(saved: Saved) -> None:
    assert len(PAIRS) == 225
    for a, b in PAIRS:
        check(saved, a, b)


def test_a_checkpoint_is_read_one_tensor_at_a_time(tmp_path: Path) -> None:
    size, count = 1 << 20, 20
    params = {f"w{n:02}": np.zeros(size // 8) for n in range(count)}

    def compiled() -> Any:
        def loss(p: Any, b: Any) -> Any:
            return sum(np.mean(p[name] * b["x"][0]) for name in params)

        return graphc.compile(
            loss, params, {"x": np.ones(2)}, optimizer=graphc.optim.sgd(0.1), backend="reference"
        )

    tracemalloc.start()
    try:
        with compiled() as one:
            one.fit([{"x": np.ones(2)}], checkpoint=Checkpoints(tmp_path))
            one.save(tmp_path / "whole.safetensors")
            one.load(tmp_path)  # what the last step kept is free
            for path in (tmp_path, tmp_path / "whole.safetensors"):
                before, _ = tracemalloc.get_traced_memory()
                tracemalloc.reset_peak()
                one.load(path)
                _, peak = tracemalloc.get_traced_memory()
                # what was read, and the device's new value beside the old one
                assert peak - before < 2.5 * size
    finally:
        tracemalloc.stop()
