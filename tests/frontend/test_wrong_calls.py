"""What a Python program may hand over by mistake ends in a message, never in a traceback of ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import optim
from graphc.frontend.numpy import functions
from graphc.frontend.numpy.trace import record
from graphc.support import config
from graphc.support.errors import GraphcError, InternalError

X, Y = np.ones((4, 3), np.float32), np.ones(4, np.float32)
W: dict[Any, Any] = {"w": np.zeros(3, np.float32)}
RAGGED = [[1.0], [1.0, 2.0]]


def loss(params: Any, batch: Any) -> Any:
    return np.mean((batch["x"] @ params["w"] - batch["y"]) ** 2)


def made(step: Any = loss, **options: Any) -> graphc.StepTrainer:
    given = {"optimizer": optim.sgd(0.1)} | options
    return graphc.compile(step, W, {"x": X, "y": Y}, **given)


def refused(code: str, call: Callable[[], Any]) -> str:
    with pytest.raises(GraphcError) as caught:
        call()
    assert caught.value.code == code, caught.value.render()
    return caught.value.render()


NO_NUMBERS: tuple[Any, ...] = ("a", None, lambda t: 0.1, [1], np.ones(3), 1j, {})
RATES = ["sgd", "momentum", "nesterov", "adam", "adamw", "adagrad", "rmsprop", "lamb", "lion"]
RATES += ["clip_by_value", "clip_by_global_norm", "ema"]


@pytest.mark.parametrize("name", [*RATES, "loss_scale", "constant_rate"])
def test_a_rate_or_a_limit_is_a_number_or_a_schedule(name: str) -> None:
    for bad in NO_NUMBERS:
        text = refused("G0206", lambda bad=bad: getattr(optim, name)(bad))
        assert f"{name}: " in text and "not a number" in text
        assert ("cosine_decay" in text) == (name in RATES)


@pytest.mark.parametrize(
    "name", ["cosine_decay", "linear_warmup", "exponential_decay", "polynomial_decay"]
)
def test_what_a_schedule_takes_are_numbers(name: str) -> None:
    options = {"factor": 0.5} if name == "exponential_decay" else {}
    for bad in NO_NUMBERS:
        refused("G0206", lambda bad=bad: getattr(optim, name)(bad, steps=3, **options))
        refused("G0206", lambda bad=bad: getattr(optim, name)(0.1, steps=bad, **options))


def test_the_boundaries_of_a_piecewise_constant_are_numbers() -> None:
    for bad in (*NO_NUMBERS, [[1], [2]], ["a"]):
        if not isinstance(bad, list | np.ndarray) or np.ndim(bad) != 1 or bad[0] == "a":
            refused("G0206", lambda bad=bad: optim.piecewise_constant(bad, [0.1, 0.2]))
    assert optim.piecewise_constant(np.array([10]), [0.1, 0.2]).boundaries == (10,)


def test_a_numpy_scalar_is_a_number() -> None:
    assert repr(optim.sgd(np.float64(0.1))) == repr(optim.sgd(0.1))
    assert optim.adam(np.array(0.5)).lr == 0.5


STEPS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "added": ("G0810", lambda p, b: np.mean(p["w"] * RAGGED)),
    "chosen": ("G0810", lambda p, b: np.mean(np.where([[True], [True, False]], p["w"], 0))),
    "taken": ("G0810", lambda p, b: np.mean(np.take(p["w"], [[0], [1, 2]]))),
    "index": ("G0810", lambda p, b: np.mean(p["w"][[[0], [1, 2]]])),
    "padded": ("G0810", lambda p, b: np.mean(np.pad(p["w"], [[1], [1, 2]]))),
    "reported": ("G0810", lambda p, b: (graphc.report("a", RAGGED), loss(p, b))[1]),
    "a report's name": ("G0809", lambda p, b: (graphc.report(0, 1.0), loss(p, b))[1]),  # type: ignore[arg-type]
    "a state's name": ("G0809", lambda p, b: (graphc.update(3, 4.0), loss(p, b))[1]),  # type: ignore[arg-type]
    "names over which": ("G0809", lambda p, b: graphc.minimize(loss(p, b), optim.sgd(0.1), over={0: 1})),  # type: ignore[arg-type]
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_ragged_lists_and_integers_for_names_in_a_step_are_refused(name: str) -> None:
    code, step = STEPS[name]
    refused(code, lambda: made(step))


def test_ragged_lists_and_integer_keys_in_batches_are_refused() -> None:
    trainer = made()
    inner = trainer.trainer
    for wrong, code in (
        ({"x": RAGGED, "y": Y}, "G0613"), ({0: X, 1: Y}, "G0611"), (None, "G0611"), ([X, Y], "G0611"),
        ({"x": X, "y": Y, 3: Y}, "G0612"),
    ):  # fmt: skip
        refused("G0806", lambda wrong=wrong: trainer.step(wrong))
        refused(code, lambda wrong=wrong: inner.step(wrong))
        refused(code, lambda wrong=wrong: inner.evaluate([wrong]))
    refused("G0613", lambda: inner.load({"w": RAGGED}))
    refused("G0510", lambda: inner.load({0: X}))
    assert trainer.step({"x": X, "y": Y})["loss"] == 1
    trainer.close()


def test_integer_keys_in_trees_are_names() -> None:
    def step(params: Any, batch: Any) -> Any:
        return np.mean((batch[0] @ params[0] - batch[1]) ** 2) + np.sum(params[1][2]), {7: 1.0}

    params = {0: W["w"], 1: {2: W["w"]}}
    with graphc.compile(step, params, {0: X, 1: Y}, optimizer=optim.sgd(0.1)) as trainer:
        assert trainer.step({0: X, 1: Y})["loss"] == 1
        assert list(trainer.params) == [0, 1]


@pytest.mark.parametrize(
    "call",
    [
        lambda: list(graphc.rebatch([{"x": RAGGED}], 2)),
        lambda: list(graphc.rebatch([{"x": 1}], 2)),
        lambda: list(graphc.rebatch([[1, 2]], 2)),  # type: ignore[list-item]
        lambda: list(graphc.replica_streams([[{"x": RAGGED}]])),
        lambda: list(graphc.replica_streams([[{0: [1]}], [{"a": [1]}]])),  # type: ignore[dict-item]
    ],
)
def test_batches_that_are_no_arrays_are_refused(call: Callable[[], Any]) -> None:
    refused("G0603", call)


def test_batches_of_none_end() -> None:
    refused("G0617", lambda: list(graphc.rebatch([{"x": [1, 2]}], 0)))


@pytest.mark.parametrize("strategy", [3, None, ["mirrored(2)"]])
def test_a_strategy_is_a_text_or_a_strategy(strategy: Any) -> None:
    refused("G0401", lambda: made(strategy=strategy))


def test_the_cuts_of_a_strategy_have_names() -> None:
    with pytest.raises(GraphcError, match="not a map of names to dims"):
        made(strategy="tensor_split(2, {0: 1})")


# -- a user without a home ------------------------------------------------------------------------


def test_a_user_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA", "GRAPHC_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", nobody)
    config.get.cache_clear()
    assert config.cache_folder() is None
    monkeypatch.undo()
    config.get.cache_clear()


def test_an_example_batch_without_examples_is_refused() -> None:
    text = refused("G0617", lambda: graphc.compile(loss, W, {"x": X[:0], "y": Y[:0]}))
    assert "the example batch is empty" in text


def test_a_param_called_step_is_told_why_it_may_not() -> None:
    params = {"step": W["w"]}
    text = refused("G0208", lambda: graphc.compile(
        lambda p, b: np.mean(b["x"] @ p["step"]), params, {"x": X}, optimizer=optim.sgd(0.1)
    ))  # fmt: skip
    assert "rename yours" in text


WRONG: tuple[Any, ...] = ((), ("a",), (None,), ((1, 2),), ([],), (X, "a"), (X, 2.5), (X, (1, 2)),
                          (X, None), (X, X), (Y, X, X), (X, -9), (X, 0, 0, 0))  # fmt: skip


def test_no_function_of_nn_ends_in_a_traceback_of_ours() -> None:
    """Whatever it is called with: it is traced, or refused with a code."""
    refused = 0

    def call(name: str, args: Any, options: Any) -> bool:
        try:
            getattr(graphc.nn, name)(*args, **options)
        except GraphcError as error:
            assert not isinstance(error, InternalError)
            return True
        except TypeError as error:
            assert "not 'NoneType'" in str(error)  # of which the trace makes an error with a code
            return True
        return False

    def step(params: Any, batch: Any) -> Any:
        nonlocal refused
        arrays = {id(X): batch["x"], id(Y): batch["ids"]}
        for name in functions.names():
            for args in WRONG:
                given = [arrays.get(id(x), x) for x in args]
                refused += call(name, given, {}) + call(name, given, {"axis": 7})
        return {"y": np.sum(batch["x"])}

    record(step, {}, {"x": X, "ids": np.zeros(4, np.int32)})
    assert refused > 1000


def test_a_function_of_nn_says_what_it_lacks_or_does_not_take() -> None:
    def traced(call: Callable[[Any], Any]) -> Callable[[], Any]:
        return lambda: record(lambda p, b: {"y": call(b["x"])}, {}, {"x": X})

    text = refused("G0810", traced(lambda x: graphc.nn.windows(x, at=(1,))))
    assert "graphc.nn.windows: missing a required argument: 'sizes'" in text
    text = refused("G0810", traced(lambda x: graphc.nn.tile(x, 2.5)))
    assert (
        "graphc.nn.tile can't be called with these arguments" in text and "graphc ops tile" in text
    )
    refused("G0203", traced(lambda x: graphc.nn.add(x)))


def test_add_of_nn_adds() -> None:
    graph = record(lambda p, b: {"y": graphc.nn.add(b["x"], 2)}, {}, {"x": X}).graph
    assert [node.op.name for node in graph if not node.op.source] == ["const", "broadcast", "add"]
