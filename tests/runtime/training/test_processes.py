"""fit in several processes: they stop together, decide alike, and one of them writes."""

from __future__ import annotations

import csv
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runtime.memory_bridge import Hub, MemoryTransport

import graphc
from graphc.callbacks import BestCheckpoint, Callback, CsvLog, EarlyStopping

RNG = np.random.default_rng(0)
DATA = [{"x": RNG.normal(size=(8, 2)).astype("f4")} for _ in range(4)]


def loss_fn(params: Any, batch: Any) -> Any:
    return np.mean((batch["x"] - params["w"]) ** 2)


def trainer(index: int, hub: Hub, backend: str) -> graphc.StepTrainer:
    return graphc.compile(
        loss_fn, {"w": np.ones(2, "f4")}, DATA[0], optimizer=graphc.optim.adam(0.9),
        strategy="mirrored(2)", backend=backend, transport=MemoryTransport(hub, index),
    )  # fmt: skip


def in_processes(work: Any, backend: str = "reference") -> list[Any]:
    """What work(index, trainer) gives in each of two processes, played by threads."""
    hub = Hub(2)

    def run(index: int) -> Any:
        with trainer(index, hub, backend) as made:
            return work(index, made)

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(run, range(2)))


class StopAt(Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, step: int, metrics: Any) -> None:
        if step == self.step:
            self.trainer.stop()


@pytest.mark.parametrize("step", [1, 2, 4, 6])
@pytest.mark.parametrize("one", [0, 1])
def test_a_stop_in_one_process_ends_all_of_them_behind_the_same_step(one: int, step: int) -> None:
    def work(index: int, made: graphc.StepTrainer) -> Any:
        callbacks = [StopAt(step)] if index == one else []
        history = made.fit(DATA, 3, validation=DATA, callbacks=callbacks)
        return history.rows(), history.stopped, made.steps, made.fit(DATA).steps

    first, second = in_processes(work)
    assert first == second
    assert first[1:] == (True, step, [step + 4])


@pytest.mark.parametrize("backend", ["reference", "numpy"])
def test_a_stop_leaves_the_variables_as_they_were_behind_its_step(backend: str) -> None:
    """The next step has begun by then in all processes: it ends before it writes anything."""

    def work(index: int, made: graphc.StepTrainer) -> Any:
        made.fit(DATA, 3, callbacks=[StopAt(3)] if index else [])
        stopped = made.params_sha256()
        made.fit(DATA[3:])
        return stopped, made.params_sha256()

    def alone(index: int, made: graphc.StepTrainer) -> Any:
        made.fit(DATA[:3])
        return made.params_sha256(), (made.fit(DATA[3:]), made.params_sha256())[1]

    assert in_processes(work, backend) == in_processes(alone, backend)


ROWS = {"x": np.random.default_rng(1).normal(size=(26, 2)).astype("f4")}


def saved(kind: str, folder: Path) -> Callable[[], Any]:
    """What opens a source of ROWS."""
    path, x = folder / f"x.{kind}", ROWS["x"]
    match kind:
        case "npy":
            np.save(path, x)
            return lambda: graphc.data.npy({"x": path})
        case "csv":
            path.write_text("\n".join(["a,b", *(f"{a!r},{b!r}" for a, b in x.tolist())]))
            return lambda: graphc.data.csv(path, {"x": ["a", "b"]})
        case "parquet":
            pa = pytest.importorskip("pyarrow")
            table = pa.table({"a": x[:, 0], "b": x[:, 1]})
            pytest.importorskip("pyarrow.parquet").write_table(table, path, row_group_size=2)
            return lambda: graphc.data.parquet(path, {"x": ["a", "b"]}, keep=13)
        case _:
            return lambda: graphc.data.arrays(ROWS)


STRATEGIES = ["mirrored(2) * reproducible(4)", "mirrored(2) * accumulate(2)", "zero(2, stage=3)"]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", ["npy", "arrays", "map", "csv", "parquet"])
def test_a_process_reads_the_examples_of_its_devices_and_all_bits_stay(
    strategy: str, kind: str, tmp_path: Path
) -> None:
    source_of = saved(kind, tmp_path)
    read = dict.fromkeys(("one", "two"), 0)

    def batches(name: str) -> Any:
        source = source_of()
        rows = source.rows

        def counted(index: Any) -> Any:
            found = rows(index)
            read[name] += len(found["x"])
            return found

        source.rows = counted  # type: ignore[method-assign]
        made = source.batches(8, shuffle=3)
        return (
            made.map(lambda batch: {"x": batch["x"] - batch["x"].mean()}) if kind == "map" else made
        )

    def trained(data: Any, **how: Any) -> str:
        how |= {"optimizer": graphc.optim.sgd(0.1), "strategy": strategy}
        with graphc.compile(loss_fn, {"w": np.ones(2, "f4")}, data.first(), **how) as made:
            made.fit(data, 1)
            made.fit(data, 1)
            return made.params_sha256()

    one = trained(batches("one"))
    hub = Hub(2)

    def run(index: int) -> str:
        return trained(batches("two"), transport=MemoryTransport(hub, index))

    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(run, range(2))] == [one, one]
    # each process reads the first batch, to compile
    assert read == {"one": 8 + 52, "two": 16 + (104 if kind == "map" else 52)}


def test_a_process_reads_no_row_group_without_an_example_of_its_own(tmp_path: Path) -> None:
    source = saved("parquet", tmp_path)()
    groups: list[int] = []
    part = source.read_part
    source.read_part = lambda number: (groups.append(number), part(number))[1]
    first = next(source.batches(8).reading(lambda n: [(4, 8)]))
    assert groups == [2, 3]
    np.testing.assert_array_equal(first["x"], np.vstack([np.zeros((4, 2)), ROWS["x"][4:8]]))


@pytest.mark.parametrize("kind", ["npy", "csv", "parquet"])
def test_a_process_without_examples_has_a_batch_of_zeros(kind: str, tmp_path: Path) -> None:
    first, *_ = saved(kind, tmp_path)().batches(8).reading(lambda n: [])
    assert first["x"].dtype == np.float32
    np.testing.assert_array_equal(first["x"], np.zeros((8, 2)))


def test_processes_decide_alike_and_process_0_writes(tmp_path: Path) -> None:
    def work(index: int, made: graphc.StepTrainer) -> Any:
        early = EarlyStopping(patience=2, restore_best=True)
        best = BestCheckpoint(tmp_path / "best.safetensors")
        history = made.fit(
            DATA, 20, validation=DATA, callbacks=[CsvLog(tmp_path / "a.csv"), early, best]
        )
        return history.rows(), early.best_epoch, best.best_epoch, made.params_sha256()

    first, second = in_processes(work)
    assert first == second and len(first[0]) < 20
    with open(tmp_path / "a.csv", newline="") as file:
        assert [float(r["val_loss"]) for r in csv.DictReader(file)] == [
            r["val_loss"] for r in first[0]
        ]
    with graphc.compile(
        loss_fn, {"w": np.ones(2, "f4")}, DATA[0], optimizer=graphc.optim.adam(0.9),
        backend="reference",
    ) as made:  # fmt: skip
        made.load(tmp_path / "best.safetensors")
        assert (made.epoch, made.params_sha256()) == (first[1], first[3])
