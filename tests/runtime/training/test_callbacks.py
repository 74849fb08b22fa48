"""The callbacks of graphc.callbacks: when they stop, what they keep, what they write."""

from __future__ import annotations

import csv
import json
import math
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from shares import every

import graphc
from graphc.callbacks import (
    BestCheckpoint,
    CsvLog,
    EarlyStopping,
    JsonLog,
    LearningRate,
    ProgressBar,
    ReduceLROnPlateau,
    TensorBoard,
)
from graphc.runtime.callbacks.base import FitSetting
from graphc.runtime.callbacks.best import Monitor
from graphc.support.errors import GraphcError

STRATEGIES = ["one_device()", "mirrored(2)", "local_sgd(2, every=3)", "zero(2, stage=3)",
              "parameter_server(2, 1, staleness=1)"]  # fmt: skip
RNG = np.random.default_rng(0)
DATA = [{"x": RNG.normal(size=(4, 2)).astype("f4")} for _ in range(4)]


def loss_fn(params: Any, batch: Any) -> Any:
    graphc.report("accuracy", np.mean(batch["x"][:, 0] > params["w"][0]))
    return np.mean((batch["x"] - params["w"]) ** 2)


def compiled(strategy: str = "one_device()", rate: float = 0.1) -> graphc.StepTrainer:
    return graphc.compile(
        loss_fn, {"w": np.ones(2, "f4")}, DATA[0], optimizer=graphc.optim.adam(rate),
        strategy=strategy, backend="reference",
    )  # fmt: skip


class Watched:
    """What callbacks ask of a trainer."""

    def __init__(self) -> None:
        self.stopped = False
        self.processes = type("Alone", (), {"index": 0})()

    def stop(self) -> None:
        self.stopped = True


def stopped_after(losses: list[float], **how: Any) -> tuple[int | None, float, int | None]:
    """(the epoch after which EarlyStopping stops, the best value, the best epoch)"""
    core, callback = Watched(), EarlyStopping("val_loss", **how)
    callback.setting = FitSetting(None, core, validates=True)  # type: ignore[arg-type]
    callback.on_train_begin()
    for epoch, loss in enumerate(losses, 1):
        callback.on_epoch_end(epoch, {"val_loss": loss})
        if core.stopped:
            break
    return callback.stopped_epoch, callback.best, callback.best_epoch


# -- early stopping --------------------------------------------------------------------------------

FALLING = [3.0, 2.0, 2.5, 2.1, 1.9, 2.0, 2.0, 2.0]


@pytest.mark.parametrize("losses, how, expected", [  # Keras's, but the last: there it never stops
    (FALLING, {}, (3, 2.0, 2)),
    (FALLING, {"patience": 1}, (3, 2.0, 2)),
    (FALLING, {"patience": 2}, (4, 2.0, 2)),
    (FALLING, {"patience": 3}, (8, 1.9, 5)),
    (FALLING, {"patience": 4}, (None, 1.9, 5)),
    (FALLING, {"patience": 3, "min_delta": 0.2}, (5, 2.0, 2)),
    (FALLING, {"patience": 2, "mode": "max"}, (3, 3.0, 1)),
    ([2.0, math.nan, math.nan, 1.0], {"patience": 2}, (3, 2.0, 1)),
    ([math.nan, math.nan], {"patience": 2}, (2, math.inf, None)),
])  # fmt: skip
def test_early_stopping_waits_as_long_as_that_of_keras(
    losses: list[float], how: dict[str, Any], expected: Any
) -> None:
    assert stopped_after(losses, **how) == expected


@pytest.mark.parametrize("name, mode", [
    ("val_loss", "min"), ("loss", "min"), ("val_accuracy", "max"), ("top5_acc", "max"),
    ("val_mape", "min"), ("fraction", "min"), ("val_f1", "max"), ("error_score", "max"),
])  # fmt: skip
def test_whether_larger_is_better_is_seen_by_the_name(name: str, mode: str) -> None:
    assert Monitor(name).mode == mode


@pytest.mark.parametrize("strategy", every(4, STRATEGIES))
def test_the_best_variables_are_put_back(strategy: str) -> None:
    """With a rate so large that the loss goes up and down; it may go down for long where workers
    take turns as they come."""
    values: dict[int, Any] = {}

    class Keep(graphc.callbacks.Callback):
        def on_epoch_end(self, epoch: int, metrics: dict[str, float]) -> None:
            values[epoch] = self.trainer.params["w"]

    early = EarlyStopping("loss", patience=4, restore_best=True)
    with compiled(strategy, rate=0.9) as trainer:
        history = trainer.fit(DATA, 500, callbacks=[Keep(), early])
        assert history.stopped and early.stopped_epoch == history.epochs[-1] < 500
        best = int(np.argmin(history["loss"])) + 1
        assert (early.best_epoch, early.best) == (best, min(history["loss"]))
        np.testing.assert_array_equal(trainer.params["w"], values[best])
        assert not np.array_equal(values[best], values[history.epochs[-1]])
        assert trainer.fit(DATA).epochs == [history.epochs[-1] + 1]


@pytest.mark.parametrize("monitor, help", [
    ("val_loss", "give fit validation=..., or monitor one of: loss, accuracy"),
    ("los", "did you mean 'loss'?"), ("nothing", "there are: loss, accuracy"),
])  # fmt: skip
@pytest.mark.parametrize(
    "kind", [EarlyStopping, lambda name: BestCheckpoint("a.safetensors", name)]
)
def test_a_metric_that_is_not_there_is_an_error(
    kind: Any, monitor: str, help: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with (
        compiled() as trainer,
        pytest.raises(GraphcError, match=f"no metric '{monitor}'") as caught,
    ):
        trainer.fit(DATA, callbacks=[kind(monitor)])
    assert (caught.value.code, caught.value.help) == ("G0632", help)


@pytest.mark.parametrize("make, words", [
    (lambda: EarlyStopping(mode="mim"), "no mode 'mim'"),
    (lambda: EarlyStopping(patience=-1), "patience=-1"),
    (lambda: JsonLog("a", every=0), "every=0"),
])  # fmt: skip
def test_wrong_options_are_refused(make: Any, words: str) -> None:
    with pytest.raises(GraphcError, match=words) as caught:
        make()
    assert caught.value.code == "G0631"


def test_an_epoch_that_was_not_validated_is_not_waited_for() -> None:
    early = EarlyStopping(patience=1)
    with compiled(rate=0.0) as trainer:
        history = trainer.fit(DATA, 9, validation=DATA, validation_every=3, callbacks=early)
    assert history.epochs == [1, 2, 3, 4, 5, 6]


# -- checkpoints -----------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", every(4, STRATEGIES))
def test_the_best_checkpoint_is_that_of_the_best_epoch(strategy: str, tmp_path: Path) -> None:
    best = BestCheckpoint(tmp_path / "best.safetensors", "val_loss")
    with compiled(strategy, rate=0.9) as trainer:
        history = trainer.fit(DATA, 9, validation=DATA, callbacks=[best])
    expected = int(np.argmin(history["val_loss"])) + 1
    with compiled(strategy) as trainer:
        trainer.load(best.path)
        assert best.best_epoch == trainer.epoch == expected
        assert trainer.evaluate(DATA)["loss"] == pytest.approx(min(history["val_loss"]), rel=1e-6)


def test_a_checkpoint_that_is_not_beaten_stays(tmp_path: Path) -> None:
    best = BestCheckpoint(tmp_path / "best.safetensors", "loss", best=0.0)
    with compiled() as trainer:
        trainer.fit(DATA, 2, callbacks=[best])
    assert not best.path.exists()


# -- logs ------------------------------------------------------------------------------------------


def csv_rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("strategy", every(4, STRATEGIES))
def test_a_csv_log_has_a_line_for_each_epoch(strategy: str, tmp_path: Path) -> None:
    with compiled(strategy) as trainer:
        history = trainer.fit(DATA, 3, validation=DATA, callbacks=[CsvLog(tmp_path / "a.csv")])
    rows = csv_rows(tmp_path / "a.csv")
    assert list(rows[0]) == ["epoch", "steps", "seconds", *history]
    assert [(int(r["epoch"]), int(r["steps"])) for r in rows] == [(1, 4), (2, 8), (3, 12)]
    assert [float(r["val_loss"]) for r in rows] == history["val_loss"]


def test_columns_of_a_validation_may_come_later(tmp_path: Path) -> None:
    with compiled() as trainer:
        history = trainer.fit(
            DATA, 5, validation=DATA, validation_every=2, callbacks=CsvLog(tmp_path / "a.csv")
        )
    rows = csv_rows(tmp_path / "a.csv")
    assert [r["val_loss"] != "" for r in rows] == [False, True, False, True, True]
    assert [float(r["loss"]) for r in rows] == history["loss"]


def json_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_json_log_has_epochs_and_steps_and_no_nan(tmp_path: Path) -> None:
    with compiled() as trainer:
        history = trainer.fit(DATA, 2, callbacks=JsonLog(tmp_path / "a.jsonl", every=2))
    rows = json_rows(tmp_path / "a.jsonl")
    assert [r.get("step", r.get("epoch")) for r in rows] == [2, 4, 1, 6, 8, 2]
    assert [r["loss"] for r in rows if "epoch" in r] == history["loss"]
    assert set(rows[0]) == {"step", "loss", "accuracy"}
    bad = [{"x": np.full((4, 2), np.inf, "f4")}]
    with compiled() as trainer:
        trainer.fit(bad, callbacks=JsonLog(tmp_path / "b.jsonl"))
    assert json_rows(tmp_path / "b.jsonl")[0]["loss"] is None


@pytest.mark.parametrize(
    "kind, name", [(CsvLog, "a.csv"), (lambda p: JsonLog(p, every=2), "a.jsonl")]
)
def test_a_log_goes_on_where_the_resumed_checkpoint_was(
    kind: Any, name: str, tmp_path: Path
) -> None:
    """The rows of what was trained behind the checkpoint are replaced."""

    def row_names(path: Path) -> list[Any]:
        rows: Any = csv_rows(path) if name.endswith("csv") else json_rows(path)
        return [(str(r.get("epoch")), str(r.get("step"))) for r in rows]

    with compiled() as trainer:
        trainer.fit(DATA, 4, callbacks=kind(tmp_path / name))
    expected = row_names(tmp_path / name)
    with compiled() as trainer:
        trainer.fit(DATA, 2)
        trainer.save(tmp_path / "half.safetensors")
        trainer.fit(DATA, 2, callbacks=kind(tmp_path / name))
    assert row_names(tmp_path / name) == expected
    with compiled() as trainer:
        trainer.load(tmp_path / "half.safetensors")
        trainer.fit(DATA, 1, callbacks=kind(tmp_path / name))
        assert row_names(tmp_path / name) == [
            r for r in expected if r[0] != "4" and r[1] not in ("14", "16")
        ]
    with compiled() as trainer:
        trainer.fit(DATA, 1, callbacks=kind(tmp_path / name))
    assert row_names(tmp_path / name) == [r for r in expected if r[0] == "1" or r[1] in ("2", "4")]


@pytest.mark.parametrize("kind", [CsvLog, JsonLog, BestCheckpoint])
def test_what_can_not_be_written_is_said_before_the_first_step(kind: Any, tmp_path: Path) -> None:
    with compiled() as trainer:
        with pytest.raises(GraphcError, match="can't write") as caught:
            trainer.fit(DATA, callbacks=kind(tmp_path / "none" / "a"))
        assert (caught.value.code, trainer.steps) == ("G0509", 0)


def test_tensorboard_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphc.runtime.callbacks.logs.WRITERS", ("no_such_writer",))
    with pytest.raises(GraphcError, match="tensorboardX is not installed") as caught:
        TensorBoard("runs")
    assert (caught.value.code, caught.value.help) == ("G0633", "pip install 'graphc[tensorboard]'")


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    module = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with compiled() as trainer:
        history = trainer.fit(
            DATA, 3, validation=DATA, callbacks=TensorBoard(tmp_path / "runs", every=2)
        )
    found = module.EventAccumulator(str(tmp_path / "runs"))
    found.Reload()
    names = {f"epoch/{name}" for name in history} | {"step/loss", "step/accuracy"}
    assert set(found.Tags()["scalars"]) == names
    for name in history:
        events = found.Scalars(f"epoch/{name}")
        assert [e.step for e in events] == [4, 8, 12]
        np.testing.assert_allclose([e.value for e in events], history[name], rtol=1e-6)
    assert [e.step for e in found.Scalars("step/loss")] == [2, 4, 6, 8, 10, 12]


# -- the learning rate -----------------------------------------------------------------------------


def with_rate(strategy: str, backend: str = "reference") -> graphc.StepTrainer:
    return graphc.compile(
        loss_fn, {"w": np.ones(2, "f4")}, DATA[0], strategy=strategy, backend=backend,
        optimizer=graphc.optim.adam(graphc.hyper("lr", 0.5)),
    )  # fmt: skip


@pytest.mark.parametrize("backend", every(2, ["reference", "numpy"]))
@pytest.mark.parametrize("strategy", every(2, STRATEGIES[:4]))
def test_the_rate_of_every_step_is_that_of_the_schedule(
    strategy: str, backend: str, tmp_path: Path
) -> None:
    def rate(steps: int) -> float:
        return 0.3 / (1 + steps)

    with with_rate(strategy, backend) as one:
        for steps in range(8):
            one.hyper["lr"] = rate(steps)
            one.step(DATA[steps % 4])
        one.trainer.meet()
        expected = one.params_sha256()
    with with_rate(strategy, backend) as first:
        first.fit(DATA, steps=6, callbacks=LearningRate(rate))
        first.save(tmp_path / "a.safetensors")
    with with_rate(strategy, backend) as second:
        second.load(tmp_path / "a.safetensors")
        second.fit(DATA, callbacks=LearningRate(rate))
        assert second.hyper["lr"] == rate(8)
        assert second.params_sha256() == expected


def test_workers_get_the_rate_too() -> None:
    rates: list[float] = []
    with with_rate("parameter_server(2, 1, staleness=1)") as trainer:
        trainer.fit(DATA, 2, callbacks=LearningRate(lambda steps: rates.append(steps) or 0.0))
        assert rates == list(range(9)) and trainer.hyper["lr"] == 0.0
        np.testing.assert_array_equal(trainer.params["w"], np.ones(2))


def test_a_rate_that_is_not_declared_is_named() -> None:
    with compiled() as trainer, pytest.raises(GraphcError, match="no hyperparameter 'lr'"):
        trainer.fit(DATA, callbacks=LearningRate(lambda steps: 0.1))


# What Keras's ReduceLROnPlateau makes of a rate of 1, epoch by epoch.
NAN = float("nan")
OF_KERAS: list[tuple[list[float], dict[str, Any], list[float]]] = [
    ([5, 4, 4, 4, 3.99995, 3, 3, 3, 3, 3], {"factor": 0.5, "patience": 2},
     [1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.125]),
    ([1] * 8, {"factor": 0.1, "patience": 1, "cooldown": 2, "min_lr": 1e-3},
     [1, 0.1, 0.1, 0.01, 0.01, 0.001, 0.001, 0.001]),
    ([0.1, 0.2, 0.3, 0.3, 0.3, 0.2, 0.4, 0.4, 0.4],
     {"factor": 0.5, "patience": 2, "mode": "max", "min_delta": 0.0},
     [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.25]),
    ([2, NAN, 1, 1, NAN, 1], {"factor": 0.5, "patience": 0}, [1, 0.5, 0.5, 0.25, 0.125, 0.0625]),
    ([3, 2.95, 2.9, 2.85, 2.8, 2.75],
     {"factor": 0.25, "patience": 2, "min_delta": 0.07, "cooldown": 1}, [1] * 6),
]  # fmt: skip


@pytest.mark.parametrize("values, options, rates", OF_KERAS)
def test_a_plateau_lowers_the_rate_as_in_keras(
    values: list[float], options: dict[str, Any], rates: list[float]
) -> None:
    callback, hyper = ReduceLROnPlateau("loss", **options), {"lr": 1.0}
    callback.setting = FitSetting(None, SimpleNamespace(hyper=hyper))  # type: ignore[arg-type]
    for _ in range(2):  # a second training begins anew
        hyper["lr"], found = 1.0, []
        callback.on_train_begin()
        for epoch, value in enumerate(values):
            callback.on_epoch_end(epoch + 1, {"loss": value})
            found.append(hyper["lr"])
        assert found == pytest.approx(rates)


def test_a_fit_lowers_its_rate_at_a_plateau_of_the_validation() -> None:
    lower = ReduceLROnPlateau(factor=0.5, patience=1, min_delta=1e9)
    rates: list[float] = []
    with with_rate("one_device()") as trainer:
        trainer.fit(
            DATA, 4, validation=DATA,
            callbacks=[lower, lambda epoch, metrics: rates.append(trainer.hyper["lr"])],
        )  # fmt: skip
    assert rates == pytest.approx([0.5, 0.25, 0.125, 0.0625])


def test_a_plateau_needs_a_rate_and_numbers_in_their_ranges() -> None:
    with compiled() as trainer, pytest.raises(GraphcError, match="no hyperparameter 'lr'"):
        trainer.fit(DATA, callbacks=ReduceLROnPlateau("loss"))
    bad: list[dict[str, Any]] = [
        {"factor": 1.0},
        {"factor": 0},
        {"patience": -1},
        {"cooldown": 1.5},
    ]
    for options in bad:
        with pytest.raises(GraphcError) as caught:
            ReduceLROnPlateau(**options)
        assert caught.value.code == "G0631" and "ReduceLROnPlateau(" in str(caught.value.help)


# -- the progress bar ------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", every(4, STRATEGIES))
def test_the_bar_shows_steps_metrics_and_throughput(
    strategy: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    with compiled(strategy) as trainer:
        history = trainer.fit(DATA, 3, validation=DATA, progress=True)
        shown = capsys.readouterr().err
        assert "epoch 3/3" in shown and "12/12" in shown and "examples/s" in shown
        assert (
            f"loss {history.last_step['loss']:.4f} val_loss {history.last['val_loss']:.4f}" in shown
        )
        trainer.fit(DATA, progress=False)
        trainer.fit(DATA)  # nobody sees it: this is no terminal
        assert capsys.readouterr().err == ""
        trainer.fit(lambda: iter(DATA), callbacks=[ProgressBar()])
        assert "epoch 6/6" in capsys.readouterr().err


def test_in_a_notebook_a_line_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []

    class Display:
        def __init__(self, data: dict[str, str], *, raw: bool, display_id: bool) -> None:
            assert raw and display_id

        def update(self, data: dict[str, str], *, raw: bool) -> None:
            lines.append(data["text/plain"])

    shell = type("ZMQInteractiveShell", (), {})
    stand_ins = {
        "ipykernel": {}, "IPython": {"get_ipython": shell}, "IPython.display": {"display": Display},
    }  # fmt: skip
    for name, contents in stand_ins.items():
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    with compiled() as trainer:
        history = trainer.fit(DATA, 3, validation=DATA)
        assert lines[-1].startswith(
            f"epoch 3/3 {'━' * 30} 12/12 loss {history.last_step['loss']:.4f} val_"
        )
        assert "examples/s 0:0" in lines[-1]
        trainer.fit(lambda: iter(DATA))
        assert lines[-1].startswith("epoch 4/4 4 loss ")
