"""fit: epochs, their metrics, validation, the data that it takes, stopping, going on."""

from __future__ import annotations

import gc
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shares import every

import graphc
from graphc.callbacks import Callback
from graphc.support.errors import GraphcError

STRATEGIES = [
    "one_device()", "mirrored(2) * accumulate(2)", "local_sgd(2, every=3)", "zero(2, stage=3)",
    "parameter_server(2, 1, staleness=1)",
]  # fmt: skip


def loss_fn(params: Any, batch: Any) -> Any:
    error = batch["x"] @ params["w"] - batch["y"]
    graphc.report("mae", np.mean(np.abs(error)))
    graphc.report("errors", error)
    return np.mean(error**2)


def batches(count: int = 5, seed: int = 0, last: int = 3) -> list[dict[str, Any]]:
    """Batches of eight examples; the last one is short."""
    rng = np.random.default_rng(seed)
    sizes = [8] * (count - 1) + [last]
    xs = [rng.normal(size=(n, 3)).astype("f4") for n in sizes]
    return [{"x": x, "y": x @ np.float32([1, -2, 3])} for x in xs]


DATA, TEST = batches(), batches(3, seed=1)


def compiled(strategy: str = "one_device()", **more: Any) -> graphc.StepTrainer:
    return graphc.compile(
        loss_fn, {"w": np.zeros(3, "f4")}, DATA[0], optimizer=graphc.optim.sgd(0.05),
        strategy=strategy, **{"backend": "reference"} | more,
    )  # fmt: skip


class Noted(Callback):
    """Notes every call."""

    def __init__(self, then: Callable[[Any, str], None] = lambda self, call: None) -> None:
        self.calls: list[str] = []
        self._then = then

    def note(self, call: str) -> None:
        self.calls.append(call)
        self._then(self, call)

    def on_train_begin(self) -> None:
        self.note("begin")

    def on_epoch_begin(self, epoch: int) -> None:
        self.note(f"epoch {epoch}")

    def on_step_end(self, step: int, metrics: dict[str, Any]) -> None:
        assert set(metrics) == {"loss", "mae", "errors"}
        self.note(f"step {step}")

    def on_epoch_end(self, epoch: int, metrics: dict[str, float]) -> None:
        self.note(f"end {epoch} of {', '.join(metrics)}")

    def on_train_end(self, history: Any) -> None:
        self.note(f"ended after {history.epochs}")

    def close(self) -> None:
        self.calls.append("close")


# -- metrics ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_metrics_of_an_epoch_are_means_weighted_by_examples(strategy: str) -> None:
    seen: list[dict[str, Any]] = []
    with compiled(strategy) as trainer:
        history = trainer.fit(
            DATA, epochs=2, validation=TEST, on_step=lambda n, found: seen.append(found)
        )
        assert history["val_loss"][-1] == trainer.evaluate(TEST)["loss"]
    assert list(history) == ["loss", "mae", "val_loss", "val_mae"]
    assert (history.epochs, history.steps, history.examples) == ([1, 2], [5, 10], [35, 35])
    sizes = [len(found["errors"]) for found in seen]
    for epoch in (0, 1):
        some = slice(5 * epoch, 5 * epoch + 5)
        for name in ("loss", "mae"):
            mean = np.average([found[name] for found in seen[some]], weights=sizes[some])
            assert history[name][epoch] == pytest.approx(mean, rel=1e-12)
    assert history["loss"][1] < history["loss"][0] > history["val_loss"][0]
    assert history.last == {name: history[name][1] for name in history}
    assert history.last_step["loss"] == seen[-1]["loss"]
    assert not history.stopped and history.rows()[0]["epoch"] == 1


@pytest.mark.parametrize("strategy", every(2, [s for s in STRATEGIES if "server" not in s]))
def test_fit_makes_the_steps_that_a_loop_makes(strategy: str) -> None:
    """Validation and callbacks change no bit, not even between two meetings of replicas."""
    with compiled(strategy, backend="numpy") as one, compiled(strategy, backend="numpy") as other:
        for _ in range(3):
            for batch in DATA:
                one.step(batch)
        one.trainer.meet()
        other.fit(DATA, 3, validation=TEST, callbacks=[Noted(), lambda epoch, metrics: None])
        assert one.params_sha256() == other.params_sha256()


def test_no_epoch_has_another_metric() -> None:
    with compiled() as trainer:
        history = trainer.fit(DATA)
    assert history.get("val_loss") is None and "loss" in history and len(history) == 2
    with pytest.raises(GraphcError, match="no epoch has a metric 'los'") as caught:
        history["los"]
    assert (caught.value.code, caught.value.help) == ("G0632", "did you mean 'loss'?")
    assert repr(history).startswith("<1 epoch: loss ")


def test_validation_comes_behind_each_so_many_epochs_and_the_last() -> None:
    with compiled() as trainer:
        history = trainer.fit(DATA, 5, validation=TEST, validation_every=2)
        assert [not math.isnan(x) for x in history["val_loss"]] == [False, True, False, True, True]
        history = trainer.fit(DATA, 3, validation=TEST, validation_every=0)
        assert [not math.isnan(x) for x in history["val_loss"]] == [False, False, True]
        assert history.epochs == [6, 7, 8]


# -- data ------------------------------------------------------------------------------------------


class Loader:
    """What a DataLoader is: something that can be gone over again; its length may be unknown."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(DATA)

    def __len__(self) -> int:
        raise TypeError("the length of an iterable dataset is unknown")


class Tensor:
    """An array of another library: it becomes one of NumPy by `__array__`."""

    def __init__(self, values: Any) -> None:
        self._values = values

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self._values, dtype)

    def __len__(self) -> int:
        return len(self._values)


@pytest.mark.parametrize("data", [
    DATA, tuple(DATA), Loader(), lambda: iter(DATA), lambda: (b for b in DATA),
    [{name: Tensor(a) for name, a in batch.items()} for batch in DATA],
])  # fmt: skip
def test_data_is_whatever_gives_batches_again(data: Any) -> None:
    with compiled() as one, compiled() as other:
        expected = one.fit(DATA, 2)
        assert dict(other.fit(data, 2)) == dict(expected)
        assert other.params_sha256() == one.params_sha256()


@pytest.mark.parametrize("how", [{"epochs": 2}, {"epochs": 2, "validation": TEST}])
def test_batches_may_be_trees_and_streams_of_microbatches(how: dict[str, Any]) -> None:
    def tree(params: Any, batch: Any) -> Any:
        return loss_fn(params, {"x": batch[0], "y": batch[1]["target"]})

    trees = [(b["x"], {"target": b["y"]}) for b in DATA]
    test = [(b["x"], {"target": b["y"]}) for b in TEST] if "validation" in how else None
    with compiled() as one:
        expected = one.fit(DATA, **how)
    with graphc.compile(
        tree,
        {"w": np.zeros(3, "f4")},
        trees[0],
        optimizer=graphc.optim.sgd(0.05),
        backend="reference",
    ) as trainer:
        assert dict(trainer.fit(trees, **how | ({"validation": test} if test else {}))) == dict(
            expected
        )


def test_microbatches_of_a_stream_are_counted() -> None:
    def halves() -> Iterator[Any]:
        for batch in DATA[:2]:
            yield iter([{k: a[:4] for k, a in batch.items()}, {k: a[4:] for k, a in batch.items()}])

    def loss(params: Any, batch: Any) -> Any:
        return np.mean((batch["x"] @ params["w"] - batch["y"]) ** 2)

    with graphc.compile(
        loss, {"w": np.zeros(3, "f4")}, DATA[0], optimizer=graphc.optim.sgd(0.05),
        strategy="accumulate(2)",
    ) as trainer:  # fmt: skip
        history = trainer.fit(halves, 2)
    assert (history.steps, history.examples) == ([2, 4], [16, 16])


def test_a_generator_is_one_epoch() -> None:
    with compiled() as trainer:
        assert trainer.fit(b for b in DATA).steps == [5]
        for how in ({"epochs": 2}, {"epochs": 2, "validation": (b for b in TEST)}):
            data = DATA if "validation" in how else (b for b in DATA)
            with pytest.raises(
                GraphcError, match="is a generator, which can be gone over only on"
            ) as caught:
                trainer.fit(data, **how)  # type: ignore[arg-type]
            assert caught.value.code == "G0630" and trainer.steps == 5
        assert trainer.fit((b for b in DATA), steps=3).steps == [8]


def test_data_that_is_empty_the_second_time_is_an_error() -> None:
    class Once:
        def __init__(self) -> None:
            self.parts = iter(DATA)

        def __iter__(self) -> Iterator[Any]:
            yield from self.parts

    for strategy in ("one_device()", "parameter_server(2, 1, staleness=1)"):
        with (
            compiled(strategy) as trainer,
            pytest.raises(GraphcError, match="no batch for epoch 2"),
        ):
            trainer.fit(Once(), 3)


@pytest.mark.parametrize("arguments, words", [
    ((DATA[0],), "the data is one batch, a dict"),
    ((5,), "the data is int, which gives no batches"),
    ((DATA, DATA[0]["y"]), "epochs is a ndarray, not a number from 1"),
    ((DATA, 0), "epochs is 0, not a number from 1"),
    ((DATA, 1.5), "epochs is 1.5, not a number from 1"),
])  # fmt: skip
def test_wrong_arguments_are_named(arguments: Any, words: str) -> None:
    with compiled() as trainer, pytest.raises(GraphcError, match=words) as caught:
        trainer.fit(*arguments)
    assert caught.value.code == "G0631"


@pytest.mark.parametrize("name, help", [
    ("validation_data", "validation=..."), ("verbose", "progress=True"), ("epoch", "did you mean"),
    ("batch_size", "the batches have their size"), ("nothing", "there are: validation, "),
])  # fmt: skip
def test_words_of_other_libraries_are_known(name: str, help: str) -> None:
    with (
        compiled() as trainer,
        pytest.raises(GraphcError, match=f"fit has no argument '{name}'") as caught,
    ):
        trainer.fit(DATA, **{name: 1})  # type: ignore[arg-type]
    assert caught.value.code == "G0631" and help in (caught.value.help or "")


@pytest.mark.parametrize("name, words", [
    ("ModelCheckpoint", "it is BestCheckpoint(path), or"), ("EarlyStoping", "did you mean 'EarlyStopping'"),
    ("nothing", "there are: BestCheckpoint, "),
])  # fmt: skip
def test_callbacks_of_other_libraries_are_known(name: str, words: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(graphc.callbacks, name)
    assert f"graphc.callbacks has no '{name}'" in str(caught.value)
    assert f"= help: {words}" in str(caught.value)


@pytest.mark.parametrize("callbacks, words", [
    ([Noted], "Noted is not a callback"), ([1], "1 is not a callback"), (3, "3 is not a callback"),
])  # fmt: skip
def test_what_is_no_callback_is_refused(callbacks: Any, words: str) -> None:
    with compiled() as trainer, pytest.raises(GraphcError, match=words) as caught:
        trainer.fit(DATA, callbacks=callbacks)
    assert caught.value.code == "G0631"


# -- callbacks and stopping ------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_callbacks_are_called_in_order(strategy: str) -> None:
    noted = Noted()
    with compiled(strategy) as trainer:
        trainer.fit(DATA[:2], 2, validation=TEST, callbacks=[noted])
        assert noted.trainer is trainer
    names = "loss, mae, val_loss, val_mae"
    assert noted.calls == [
        "begin", "epoch 1", "step 1", "step 2", f"end 1 of {names}", "epoch 2", "step 3", "step 4",
        f"end 2 of {names}", "ended after [1, 2]", "close",
    ]  # fmt: skip


def test_a_function_is_called_at_the_end_of_every_epoch() -> None:
    seen: list[Any] = []
    with compiled() as trainer:
        history = trainer.fit(
            DATA, 2, callbacks=lambda epoch, metrics: seen.append((epoch, metrics))
        )
    assert seen == [(1, {k: history[k][0] for k in history}), (2, history.last)]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_stop_ends_the_training_behind_the_step_and_the_epoch_is_noted(strategy: str) -> None:
    def stop(callback: Any, call: str) -> None:
        if call == "step 7":
            callback.trainer.stop()

    noted = Noted(stop)
    with compiled(strategy) as trainer:
        history = trainer.fit(DATA, 9, validation=TEST, callbacks=[noted])
        most = 8 if "server" in strategy else 7  # workers finish what they have begun
        assert history.stopped and 7 <= trainer.steps <= most
        assert history.epochs == [1, 2] and "val_loss" in history.last
        assert noted.calls[-3:] == [
            "end 2 of loss, mae, val_loss, val_mae",
            "ended after [1, 2]",
            "close",
        ]
        assert not trainer.fit(DATA).stopped


def test_steps_end_within_an_epoch() -> None:
    with compiled() as trainer:
        history = trainer.fit(DATA, steps=7, validation=TEST)
        assert (history.epochs, history.steps, history.examples) == ([1, 2], [5, 7], [35, 16])
        assert trainer.epoch == 1
        assert trainer.fit(DATA, steps=0).epochs == []


def test_a_callback_that_fails_is_closed_and_so_are_the_others() -> None:
    def fail(callback: Any, call: str) -> None:
        if call == "step 2":
            raise ZeroDivisionError

    noted, other = Noted(fail), Noted()
    with compiled() as trainer:
        with pytest.raises(ZeroDivisionError):
            trainer.fit(DATA, callbacks=[noted, other])
        assert (noted.calls[-1], other.calls[-1], trainer.steps) == ("close", "close", 2)
        assert trainer.fit(DATA).steps == [7]


# -- going on --------------------------------------------------------------------------------------


def test_epochs_are_counted_on_in_later_calls_and_after_load(tmp_path: Path) -> None:
    with compiled() as trainer:
        trainer.fit(DATA, 2)
        assert trainer.fit(DATA, 2).epochs == [3, 4]
        trainer.save(tmp_path / "a.safetensors")
    with compiled() as trainer:
        trainer.load(tmp_path / "a.safetensors")
        assert trainer.epoch == 4
        assert trainer.fit(DATA).epochs == [5]


PAIRS = [(s, n) for n in (3, 5, 8) for s in STRATEGIES if "server" not in s]


@pytest.mark.parametrize("pair", every(6, PAIRS), ids=str)
def test_a_checkpoint_from_within_an_epoch_goes_on_there(
    pair: tuple[str, int], tmp_path: Path
) -> None:
    strategy, steps = pair
    with compiled(strategy) as whole:
        expected = whole.fit(DATA, 3)
        sha = whole.params_sha256()
    checkpoints = graphc.Checkpoints(tmp_path, every=steps)
    with compiled(strategy) as first:
        first.fit(DATA, steps=steps, checkpoint=checkpoints)
    with compiled(strategy) as second:
        second.load(tmp_path)
        assert second.steps == steps
        history = second.fit(DATA, epochs=3 - second.epoch)
        assert second.params_sha256() == sha
    assert history.steps[-1] == 15 and history["loss"][-1] == expected["loss"][-1]


def test_a_checkpoint_of_the_last_step_of_an_epoch_is_behind_the_epoch(tmp_path: Path) -> None:
    with compiled() as trainer:
        trainer.fit(DATA, steps=5, checkpoint=graphc.Checkpoints(tmp_path, every=5))
        assert trainer.epoch == 1
    with compiled() as trainer:
        trainer.load(tmp_path)
        assert trainer.epoch == 1


def calls_of(work: Callable[[], object]) -> int:
    """How many Python functions are called, but for those that listen to the garbage collector."""
    made = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal made
        made += event == "call"

    gc.disable()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return made


def test_fit_adds_two_calls_to_a_step() -> None:
    """The mean and the size of the batch: what it costs does not depend on the machine."""
    with compiled(backend="numpy") as trainer:
        full, (few, many) = DATA[0], ([DATA[0]] * 50, [DATA[0]] * 100)
        trainer.fit(few)
        each = (calls_of(lambda: trainer.fit(many)) - calls_of(lambda: trainer.fit(few))) / 50
        alone = calls_of(lambda: trainer.step(full)) - 1  # without that of the lambda
        assert each == alone + 2


# -- asynchronous strategies -----------------------------------------------------------------------


@pytest.mark.parametrize("how", [{}, {"validation": TEST}])
def test_a_recording_replays_with_what_happens_between_epochs(
    how: dict[str, Any], tmp_path: Path
) -> None:
    found = []
    for files in ({"record": tmp_path / "a"}, {"replay": tmp_path / "a", "record": tmp_path / "b"}):
        with compiled("parameter_server(3, 1, staleness=2)") as trainer:
            history = trainer.fit(DATA, 3, **how, **files)
            found.append((dict(history), history.steps, trainer.params_sha256()))
    assert found[0] == found[1]
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text()
    with compiled("parameter_server(3, 1, staleness=2)") as trainer:
        other = {} if "validation" in how else {"validation": TEST}
        with pytest.raises(GraphcError, match="the recording is of other batches"):
            trainer.fit(DATA, 3, replay=tmp_path / "a", **other)  # type: ignore[arg-type]
