"""Training on a source: a training that was interrupted anywhere ends with the same bits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data.conftest import ARRAYS
from shares import every

import graphc
from graphc import data

EXAMPLES = {"x": ARRAYS["x"], "y": (ARRAYS["x"].sum(1) > 0).astype(np.int32)}


def loss_fn(params: Any, batch: Any) -> Any:
    logits = batch["x"] @ params["w"]
    return np.mean(graphc.nn.cross_entropy(logits, batch["y"]))


def noisy(batch: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {**batch, "x": batch["x"] + rng.standard_normal(batch["x"].shape, np.float32)}


def batches() -> data.Batches:
    return data.arrays(EXAMPLES).batches(40, shuffle=5).map(noisy).prefetch(2, workers=2)


def trainer(strategy: str = "one_device()", fn: Any = loss_fn, example: Any = None) -> Any:
    example = batches().first() if example is None else example
    params = {"w": np.zeros((3, 2), np.float32)}
    return graphc.compile(fn, params, example, optimizer=graphc.optim.adam(0.1), strategy=strategy)


@pytest.mark.parametrize("stop", every(2, [3, 1, 6, 5, 8, 12]))
def test_a_training_resumes_within_an_epoch(tmp_path: Path, stop: int) -> None:
    with trainer() as whole:
        whole.fit(batches(), epochs=3)
        wanted = whole.params_sha256()
    with trainer() as first:
        first.fit(batches(), steps=stop)
        first.save(tmp_path / "a.safetensors")
        assert first.trainer.position == data.Position(*divmod(stop, 6)) or stop % 6
    with trainer() as second:
        second.load(tmp_path / "a.safetensors")
        seen: list[int] = []
        given = batches().map(lambda b: seen.append(len(b["x"])) or b)
        second.fit(given, epochs=3 - second.epoch)
        assert second.steps == 18
        assert len(seen) == 18 - stop  # those before are not even read
        assert second.params_sha256() == wanted


def test_a_checkpoint_behind_the_last_batch_of_an_epoch_resumes_with_the_next(
    tmp_path: Path,
) -> None:
    with trainer() as whole:
        whole.fit(batches(), epochs=2)
        wanted = whole.params_sha256()
    with trainer() as first:
        where = graphc.Checkpoints(tmp_path, every=6)
        first.fit(batches(), epochs=1, checkpoint=where)
    with trainer() as second:
        second.load(tmp_path)
        second.fit(batches(), epochs=1)
        assert second.params_sha256() == wanted


def test_a_fit_that_ended_within_an_epoch_goes_on_there() -> None:
    given = batches()
    with trainer() as one, trainer() as other:
        for steps in (2, 5, 3, 2):
            one.fit(given, steps=steps)
        other.fit(batches(), epochs=2)
        assert one.params_sha256() == other.params_sha256()
        one.fit(given, steps=1)
        one.fit(batches(), steps=6)  # others begin the epoch anew
        assert one.trainer.position == data.Position(3)


def test_the_epoch_of_the_trainer_decides_which_batches_come() -> None:
    given = batches()
    with trainer() as one, trainer() as other:
        one.fit(given, epochs=1)
        next(iter(given))
        one.fit(given, epochs=1)
        other.fit(batches(), epochs=2)
        assert one.params_sha256() == other.params_sha256()


def test_an_asynchronous_training_goes_over_a_source() -> None:
    given = data.arrays(EXAMPLES).batches(40, shuffle=5)
    with trainer("parameter_server(2, 1, staleness=2)", example=given.first()) as one:
        history = one.fit(given, epochs=3)
        assert one.steps == 18
        assert history["loss"][-1] < history["loss"][0]


def test_evaluation_and_prediction_take_a_source() -> None:
    def reporting(params: Any, batch: Any) -> Any:
        graphc.report("logits", batch["x"] @ params["w"])
        return loss_fn(params, batch)

    source = data.arrays(EXAMPLES)
    with trainer(fn=reporting) as one:
        one.fit(source.batches(40, shuffle=0), epochs=2, validation=source.batches(32))
        logits = EXAMPLES["x"] @ one.params["w"]
        assert np.allclose(one.predict(source.batches(32).prefetch())["logits"], logits, atol=1e-5)
        assert np.isclose(
            one.evaluate(source.batches(32))["loss"], one.evaluate(source.batches(40))["loss"]
        )


def test_a_source_in_the_place_of_its_batches_is_refused() -> None:
    source = data.arrays(EXAMPLES)
    with trainer() as one:
        for wrong in (one.fit, one.evaluate, lambda s: one.fit(batches(), validation=s), list):
            with pytest.raises(graphc.GraphcError, match="it is not batches") as caught:
                wrong(source)
            assert caught.value.code == "G0637"


class Loader:
    """What torch's DataLoader gives of rows that are tuples: lists, of tensors."""

    def __init__(self, kind: type = list) -> None:
        self.kind = kind

    def __len__(self) -> int:
        return 6

    def __iter__(self) -> Any:
        for i in range(0, len(EXAMPLES["x"]), 40):
            yield self.kind([Tensor(EXAMPLES["x"][i : i + 40]), Tensor(EXAMPLES["y"][i : i + 40])])


class Tensor:
    """An array of another library."""

    def __init__(self, array: Any) -> None:
        self._array, self.shape, self.dtype = array, array.shape, "a dtype of its own"

    def __len__(self) -> int:
        return len(self._array)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self._array


@pytest.mark.parametrize("kind", [tuple, list])
def test_lists_and_tuples_of_tensors_count_as_the_same(kind: type) -> None:
    def pairs(params: Any, batch: Any) -> Any:
        return loss_fn(params, {"x": batch[0], "y": batch[1]})

    first = next(iter(Loader(kind)))
    with (
        trainer(fn=pairs, example=first) as one,
        trainer(example=data.arrays(EXAMPLES).batches(40).first()) as other,
    ):
        one.fit(Loader(), epochs=2)
        other.fit(data.arrays(EXAMPLES).batches(40), epochs=2)
        assert np.array_equal(one.params["w"], other.params["w"])
        one.fit(Loader(tuple), epochs=1)
        with pytest.raises(graphc.GraphcError, match="has the leaves batch.0, batch.1, batch.2"):
            one.fit([[*next(iter(Loader())), 3]])


class Elsewhere(Tensor):
    """One that is not in the machine's memory."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError("it is on another device\nand more")


def test_a_tensor_that_is_no_array_is_refused_with_the_reason() -> None:
    wrong = {**data.arrays(EXAMPLES).batches(40).first(), "x": Elsewhere(EXAMPLES["x"][:40])}
    words = "batch 'x' is a Elsewhere that can't be made an array: it is on another device$"
    with pytest.raises(graphc.GraphcError) as caught:
        trainer(example=wrong)
    assert re.search(words, caught.value.message) and caught.value.code == "G0806"
    with trainer() as one, pytest.raises(graphc.GraphcError) as caught:
        one.fit([wrong])
    assert re.search(words, caught.value.message)
