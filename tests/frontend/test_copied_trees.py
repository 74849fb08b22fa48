"""The params and the state of a trainer: copies that can't be set by mistake, and trees that can."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest

import graphc
from graphc.layers import Dense, Sequential
from graphc.support.errors import GraphcError

W = np.ones((3, 2), np.float32)
BATCH = {"x": np.ones((4, 3), np.float32), "y": np.ones((4, 2), np.float32)}


def loss(params: Any, batch: Any) -> Any:
    w, b = params["layers"]
    return np.mean((batch["x"] @ w + b["b"] - batch["y"]) ** 2)


@pytest.fixture
def trainer() -> Iterator[graphc.StepTrainer]:
    params = {"layers": [W, {"b": np.zeros(2, np.float32)}]}
    with graphc.compile(loss, params, BATCH, optimizer=graphc.optim.sgd(0.1)) as made:
        yield made


def set_item(tree: Any, key: Any) -> None:
    tree[key] = W


@pytest.mark.parametrize(
    "change",
    [
        lambda t: set_item(t.params, "layers"),
        lambda t: set_item(t.params["layers"], 0),
        lambda t: set_item(t.params["layers"][1], "b"),
        lambda t: t.params.update(layers=W),
        lambda t: t.params.pop("layers"),
        lambda t: t.params["layers"].append(W),
    ],
)
def test_a_part_of_a_copy_is_not_set(
    trainer: graphc.StepTrainer, change: Callable[[Any], None]
) -> None:
    with pytest.raises(GraphcError, match=r"trainer\.params is a copy") as caught:
        change(trainer)
    assert caught.value.code == "G0838" and caught.value.span is not None
    assert "trainer.params = tree" in str(caught.value.help)


@dataclass
class Scale:
    """A layer of a user's, with a setting and a value that is not trained."""

    gains: dict[str, Any]
    shape: tuple[int, ...] = field(default=(2,), metadata={"static": True})

    def __call__(self, x: Any) -> Any:
        return x * self.gains["first"]


class Pair(NamedTuple):
    scale: Scale
    last: Any


@dataclass(slots=True)
class Slotted:
    of: Any
    copy_of: Any


@dataclass(frozen=True)
class Frozen:
    w: Any
    inner: list[Any]


@pytest.fixture
def model() -> Iterator[graphc.StepTrainer]:
    scale = Scale({"first": np.ones(2, np.float32)})
    params = {"net": Sequential(Dense(3, 2), np.tanh), "pair": Pair(scale, W), "again": scale,
              "frozen": Frozen(W, [W]), "slotted": Slotted(W, W)}  # fmt: skip

    def step(p: Any, batch: Any) -> Any:
        y = p["pair"].scale(p["net"](batch["x"])) + p["again"].gains["first"]
        w = (
            p["frozen"].w
            + p["frozen"].inner[0]
            + p["pair"].last
            + p["slotted"].of * p["slotted"].copy_of
        )
        return np.mean((y + batch["x"] @ w) ** 2)

    with graphc.compile(step, params, BATCH, optimizer=graphc.optim.sgd(0.1)) as made:
        yield made


@pytest.mark.parametrize(
    "change",
    [
        lambda p: setattr(p["net"][0], "w", W),
        lambda p: setattr(p["net"].layers[0], "b", None),
        lambda p: delattr(p["net"].layers[0], "w"),
        lambda p: setattr(p["pair"].scale, "gains", {}),
        lambda p: set_item(p["pair"].scale.gains, "first"),
        lambda p: set_item(p["frozen"].inner, 0),
        lambda p: setattr(p["slotted"], "of", W),
    ],
)
def test_an_attribute_of_a_copy_is_not_set(
    model: graphc.StepTrainer, change: Callable[[Any], None]
) -> None:
    with pytest.raises(GraphcError, match=r"trainer\.params is a copy") as caught:
        change(model.params)
    assert caught.value.code == "G0838" and caught.value.span is not None


def test_copies_of_layers_are_like_them(model: graphc.StepTrainer) -> None:
    p = model.params
    assert isinstance(p["net"], Sequential) and p["net"].__class__ is Sequential
    assert repr(p["net"]) == "Sequential(Dense(3, 2), tanh)"
    assert (p["slotted"].of == W).all() and p["slotted"].__class__ is Slotted
    assert p["pair"].scale is p["again"] and p["again"].shape == (2,)
    for tree in (copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert type(tree["net"]) is Sequential and type(tree["net"][0]) is Dense
        assert type(tree["again"]) is Scale and tree["again"] is tree["pair"].scale
        assert type(tree["again"].gains) is dict
        tree["net"][0].w = W
        model.params = tree
        assert (model.params["net"][0].w == W).all()
        model.step(BATCH)
        model.params = model.params
    replaced = dataclasses.replace(p["again"], gains={})
    replaced.gains = {"first": W}
    assert type(replaced) is Scale


def test_a_class_that_registers_its_subclasses_gets_none() -> None:
    known: list[type] = []

    @dataclass
    class Registered:
        w: Any

        def __init_subclass__(cls) -> None:
            known.append(cls)

    def step(p: Any, batch: Any) -> Any:
        return np.mean(batch["x"] @ p.w)

    with graphc.compile(step, Registered(W), BATCH, optimizer=graphc.optim.sgd(0.1)) as trainer:
        assert type(trainer.params) is Registered and not known


def test_a_whole_tree_is_set_and_trained_on(trainer: graphc.StepTrainer) -> None:
    tree = copy.deepcopy(trainer.params)
    assert type(tree) is dict and type(tree["layers"]) is list and type(tree["layers"][1]) is dict
    assert type(pickle.loads(pickle.dumps(trainer.params))) is dict
    tree["layers"][0] = 2 * W
    trainer.params = tree
    assert (trainer.params["layers"][0] == 2 * W).all()
    assert trainer.step(BATCH)["loss"] == 25.0  # (6 - 1)^2
    trainer.params = {"layers": (W, trainer.params["layers"][1])}
    with graphc.compile(loss, trainer.params, BATCH) as again:
        assert again.params.keys() == trainer.params.keys()


def test_a_tree_that_does_not_fit_is_refused(trainer: graphc.StepTrainer) -> None:
    with pytest.raises(GraphcError, match="'layers.0', 'layers.1.b', not 'w'") as caught:
        trainer.params = {"w": W}
    assert caught.value.code == "G0806"
    with pytest.raises(GraphcError, match="G0510"):
        trainer.params = {"layers": [W[:1], {"b": np.zeros(2, np.float32)}]}
    with pytest.raises(GraphcError, match="the step has no state"):
        trainer.state = {"w": W}


def test_a_state_is_set_as_params_are() -> None:
    def step(params: Any, state: Any, batch: Any) -> Any:
        return np.mean(batch["x"] @ params["w"]), {"n": state["n"] + 1}

    first, sgd = {"n": np.float32(0)}, graphc.optim.sgd(0.1)
    with graphc.compile(step, {"w": W}, BATCH, optimizer=sgd, state=first) as trainer:
        with pytest.raises(GraphcError, match=r"trainer\.state is a copy"):
            trainer.state["n"] = 3
        trainer.state = {"n": 3.0}
        trainer.step(BATCH)
        assert trainer.state == {"n": 4}
