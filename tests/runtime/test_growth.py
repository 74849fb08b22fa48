"""Steps and dropped trainers leave nothing behind: no memory, no threads, no descriptors."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from dataclasses import dataclass

import numpy as np
import pytest
from shares import every

import graphc

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

STRATEGIES = (
    "one_device()", "accumulate(2)", "mirrored(2)", "mirrored(3) * accumulate(2)",
    "mirrored(2) * reproducible(4)", "zero(2)", "zero(2, stage=2)", "zero(2, stage=3)",
    "central_storage(2)", "parameter_server(2, 2)", "parameter_server(2, 1, staleness=1)",
    "parameter_server(2, 1, staleness=none)", 'tensor_split(2, {"w": 1})',
    'mirrored(2) * tensor_split(2, {"w": 1})', "local_sgd(2, every=4)", "diloco(2, every=4)",
)  # fmt: skip
ROOM = 4 << 20  # bytes of memory that come and go
PATIENCE = 300  # seconds until a thread must have ended


@dataclass(frozen=True)
class Held:
    """What the process holds: bytes of memory, threads of Python and of all, descriptors."""

    bytes: int
    threads: tuple[int, int]
    descriptors: int

    def numbers_exceed(self, other: Held) -> bool:
        mine, others = (*self.threads, self.descriptors), (*other.threads, other.descriptors)
        return any(a > b for a, b in zip(mine, others, strict=True))


def held() -> Held:
    gc.collect()
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    tasks, descriptors = (len(os.listdir(f"/proc/self/{x}")) for x in ("task", "fd"))
    return Held(pages * os.sysconf("SC_PAGE_SIZE"), (threading.active_count(), tasks), descriptors)


def check_after(before: Held) -> None:
    """Nothing more is held than before; threads that were told to end may take their time."""
    until = time.monotonic() + PATIENCE
    while (after := held()).numbers_exceed(before) and time.monotonic() < until:
        time.sleep(0.01)
    assert not after.numbers_exceed(before), (before, after)
    assert after.bytes <= before.bytes + ROOM, f"{after.bytes - before.bytes:,} bytes more"


def trainer(strategy: str) -> graphc.StepTrainer:
    def loss(p: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> np.ndarray:
        return np.mean(np.square(np.tanh(b["x"] @ p["w"]) @ p["v"] - b["y"]))

    params = {"w": np.full((8, 16), 0.1, np.float32), "v": np.full(16, 0.1, np.float32)}
    return graphc.compile(
        loss, params, batch(), optimizer=graphc.optim.adam(1e-3), strategy=strategy
    )


def batch(examples: int = 12) -> dict[str, np.ndarray]:
    return {"x": np.ones((examples, 8), np.float32), "y": np.ones(examples, np.float32)}


def train(made: graphc.StepTrainer, steps: int) -> None:
    """Steps on full batches, and now and then on a short one."""
    full, short = batch(), batch(7)
    if "staleness" in made.strategy:
        made.fit(full if i % 9 else short for i in range(steps))
        return
    for i in range(steps):
        made.step(full if i % 9 else short)


def check_steps(strategy: str, steps: int) -> None:
    with trainer(strategy) as made:
        train(made, steps // 4)
        before = held()
        train(made, steps)
        check_after(before)


def check_dropped(strategy: str, trainers: int) -> None:
    for count in (trainers // 4, trainers):
        before = held()
        for i in range(count):
            made = trainer(strategy)
            train(made, 3)
            if i % 2:
                made.close()  # the others are only dropped
            del made
    check_after(before)


@pytest.mark.one_in(1)
@pytest.mark.parametrize("strategy", every(8, STRATEGIES[::2]))
def test_steps_and_dropped_trainers_leave_nothing_behind(strategy: str) -> None:
    check_steps(strategy, 200)
    check_dropped(strategy, 4)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_many_steps_leave_nothing_behind(strategy: str) -> None:
    check_steps(strategy, 20_000)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_many_dropped_trainers_leave_nothing_behind(strategy: str) -> None:
    check_dropped(strategy, 200)
