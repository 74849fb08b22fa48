"""What is looked up for a variable is written there at once; a wrong index changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from graphc_numpy import NumpyBackend

import graphc
from graphc.lowering.lower import lower
from graphc.support.errors import GraphcError

NATIVE = NumpyBackend(native=True)
ROWS, WIDTH, COUNT = 30, 16, 24
Batch = dict[str, Any]
LookUp = Callable[[Batch], Any]

LOOKUPS: dict[str, LookUp] = {
    "rows": lambda b: b["x"][b["i"]],
    "rows of a table of indices": lambda b: b["x"][b["i"].reshape(4, 6)],
    "every other row": lambda b: b["x"][b["i"][::2]],
    "rows, and then a function": lambda b: np.tanh(b["x"][b["i"]] * 2.0) + b["u"],
    "by an index that was computed": lambda b: b["x"][b["i"] + 1 - b["one"]],
    "entries": lambda b: b["x"][:, 0][b["i"]],
    "along rows": lambda b: np.take_along_axis(b["x"][:COUNT], b["j"], axis=1),
    "along columns": lambda b: np.take_along_axis(b["x"], b["k"], axis=0),
    "one row": lambda b: b["x"][b["i"][:1]],
    "of what was looked up": lambda b: b["x"][b["x"].astype(np.int32)[:, 0][b["i"]] * 0 + b["i"]],
}


def batch(seed: int = 0) -> Batch:
    r = np.random.default_rng(seed)

    def whole(*shape: int, below: int) -> Any:
        return r.integers(-below, below, shape).astype(np.int32)

    return {
        "x": r.standard_normal((ROWS, WIDTH)).astype(np.float32),
        "u": r.standard_normal((COUNT, WIDTH)).astype(np.float32),
        "i": whole(COUNT, below=ROWS), "j": whole(COUNT, 5, below=WIDTH),
        "k": whole(7, WIDTH, below=ROWS), "one": np.ones(COUNT, np.int32),
    }  # fmt: skip


def compiled(look_up: LookUp, backend: Any = NATIVE) -> Any:
    def step(p: Any, s: Any, b: Batch) -> Any:
        return p["w"], {"y": look_up(b)}

    y = np.asarray(look_up(batch()))
    return graphc.compile(
        step, {"w": np.float32(0)}, batch(), state={"y": np.zeros_like(y)},
        optimizer=graphc.optim.sgd(0.0), whole=("*",), backend=backend,
    )  # fmt: skip


@pytest.mark.parametrize("name", LOOKUPS)
def test_entries_are_those_of_numpy_in_all_steps(name: str) -> None:
    with compiled(LOOKUPS[name]) as trainer:
        for seed in range(3):  # from the second step on, in one native call
            trainer.step(batch(seed))
            np.testing.assert_allclose(trainer.state["y"], LOOKUPS[name](batch(seed)), atol=1e-6)


@pytest.mark.parametrize("name", ["rows", "rows, and then a function", "along rows"])
def test_what_is_looked_up_does_not_wait_in_memory_of_its_own(name: str) -> None:
    with compiled(LOOKUPS[name]) as trainer:
        arena = lower(trainer.trainer.plan.programs["train"]).arena
        assert arena < trainer.state["y"].nbytes


@pytest.mark.parametrize(
    ("name", "steps"), [*((name, 2) for name in LOOKUPS), ("rows", 0), ("along rows", 0)]
)
def test_a_wrong_index_is_told_as_by_the_reference_and_changes_nothing(
    name: str, steps: int
) -> None:
    wrong, said = batch(), list[str]()
    for entry, index in (("i", ROWS), ("i", -ROWS - 1), ("j", WIDTH), ("k", ROWS + 2)):
        wrong[entry].reshape(-1)[[0, 4]] = index
    for backend in (NATIVE, "reference"):
        with compiled(LOOKUPS[name], backend) as trainer:
            for seed in range(steps):
                trainer.step(batch(seed))
            before = trainer.state["y"].copy()
            with pytest.raises(GraphcError) as caught:
                trainer.step(wrong)
            said.append(caught.value.message)
            assert trainer.state["y"].tobytes() == before.tobytes()
    assert said[0] == said[1]


def test_a_table_that_the_step_changes_is_looked_up_as_it_was() -> None:
    def step(p: Any, s: Any, b: Batch) -> Any:
        return p["w"], {"y": s["table"][b["i"]], "table": s["table"] * 2.0}

    b = batch()
    state = {"y": np.zeros((COUNT, WIDTH), np.float32), "table": b["x"]}
    with graphc.compile(
        step, {"w": np.float32(0)}, b, state=state, optimizer=graphc.optim.sgd(0.0),
        whole=("*",), backend=NATIVE,
    ) as trainer:  # fmt: skip
        for k in range(3):
            trainer.step(b)
            assert (trainer.state["y"] == b["x"][b["i"]] * 2**k).all()
