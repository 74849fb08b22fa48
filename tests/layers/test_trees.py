"""Layers are trees of parameters: what is a leaf, what is a setting, and how variables are named."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn
from graphc.frontend.numpy.pytree import flatten
from graphc.layers import (
    BatchNorm,
    Conv2d,
    Dense,
    Dropout,
    Embedding,
    Layer,
    LayerNorm,
    MultiHeadAttention,
    Sequential,
)
from graphc.support.errors import GraphcError
from graphc.text import parse_ir, print_ir

RNG = np.random.default_rng(0)
BATCH = {"x": RNG.normal(size=(6, 4)).astype(np.float32), "y": np.arange(6, dtype=np.int32) % 3}


def loss(model: Any, batch: Any) -> Any:
    return np.mean(nn.cross_entropy(model(batch["x"]), batch["y"]))


def compiled(model: Any, strategy: str = "one_device()", **options: Any) -> graphc.StepTrainer:
    return graphc.compile(
        loss, model, BATCH, optimizer=graphc.optim.adam(1e-2), strategy=strategy, **options
    )


@dataclass
class Block:
    """A layer of a user: settings and parameters side by side."""

    norm: LayerNorm
    inner: Sequential
    rate: float = 0.5
    heads: int = 2
    activation: Any = np.tanh
    table: Any = field(default=None, metadata={"static": True})

    def __call__(self, x: Any) -> Any:
        return x + self.rate * self.activation(self.inner(self.norm(x))) + self.table


def block() -> Block:
    inner = Sequential(Dense(4, 5), partial(nn.leaky_relu, slope=0.1), Dense(5, 4, bias=False))
    return Block(LayerNorm(4), inner, table=np.ones(4, np.float32))


def test_arrays_are_leaves_and_numbers_functions_and_static_fields_are_settings() -> None:
    leaves, form = flatten({"block": block(), "scale": 2.0}, "params")
    assert list(leaves) == [
        "block.norm.scale", "block.norm.shift", "block.inner.layers.0.w", "block.inner.layers.0.b",
        "block.inner.layers.2.w", "scale",
    ]  # fmt: skip
    made = form.build({name: name for name in leaves})["block"]
    assert (made.rate, made.heads, made.activation) == (0.5, 2, np.tanh)
    assert made.table.tolist() == [1, 1, 1, 1]
    assert made.inner[0].w == "block.inner.layers.0.w" and made.inner[0].inputs == 4


class Scaled(Layer):
    """A layer as other frameworks have them: what `__init__` sets are its parts."""

    gain = 1.0  # not what an instance has

    def __init__(self, width: int) -> None:
        self.norm = LayerNorm(width)
        self.steps = [Dense(width, width) for _ in range(2)]
        self.gain = 3.0
        self.shift = graphc.param(width, init=graphc.init.ones())

    def __call__(self, x: Any) -> Any:
        for step in self.steps:
            x = self.gain * step(self.norm(x)) + self.shift
        return x


def test_what_a_layer_sets_and_does_not_declare_is_a_part_of_it() -> None:
    with compiled(Sequential(Scaled(4), Dense(4, 3))) as trainer:
        names = [n for n in trainer.variables("param") if n.startswith("layers.0.")]
        before = trainer.params
        trainer.step(BATCH)
        trained = trainer.params
    assert names == [
        "layers.0.norm.scale", "layers.0.norm.shift", "layers.0.steps.0.w", "layers.0.steps.0.b",
        "layers.0.steps.1.w", "layers.0.steps.1.b", "layers.0.shift",
    ]  # fmt: skip
    assert trained[0].gain == 3.0 and before[0].shift.tolist() == [1, 1, 1, 1]
    with pytest.raises(GraphcError, match="is a copy"):
        trained[0].shift = 0
    own = copy.deepcopy(trained)
    own[0].shift = own[0].shift * 0
    assert own[0].gain == 3.0 and type(own[0]) is Scaled
    with compiled(own) as again:
        assert again.variables("param")["layers.0.shift"].tolist() == [0, 0, 0, 0]


def test_a_declared_layer_keeps_its_other_attributes_too() -> None:
    @dataclass
    class Mine:
        width: int
        factor: float = 1.0

        def __post_init__(self) -> None:
            self.w = graphc.param((self.width, self.width))
            self.factor = 2.0

        @cached_property
        def table(self) -> Any:
            return np.ones(self.width, np.float32)

        def __call__(self, x: Any) -> Any:
            return self.factor * (x @ self.w) + self.table

    mine = Mine(4)
    assert mine.table.shape == (4,)
    leaves, form = flatten(mine, "params")
    made = form.build({name: name for name in leaves})
    assert list(leaves) == ["w"] and made.w == "w" and made.factor == 2.0
    assert "table" not in vars(made) and made.table.shape == (4,)


def test_a_field_that_is_not_set_is_named() -> None:
    class Mine(Dense):
        def __init__(self) -> None:
            self.w = graphc.param((4, 3))

        def __call__(self, x: Any) -> Any:
            return x @ self.w

    with pytest.raises(
        GraphcError, match=r"(?s)'layers.0' is a Mine without its field 'inputs'.*super"
    ):
        compiled(Sequential(Mine()))


def test_an_object_that_is_called_but_is_no_dataclass_is_an_error() -> None:
    class Mine:
        def __call__(self, x: Any) -> Any:
            return x

    with pytest.raises(
        GraphcError, match=r"(?s)'layers.1' is a Mine, not an array.*\n.*@dataclass"
    ):
        compiled(Sequential(Dense(4, 3), Mine()))


def test_a_model_is_given_back_with_arrays_and_compiles_again() -> None:
    with compiled(Sequential(Dense(4, 3), BatchNorm(3), Dropout(0.2))) as trainer:
        before = trainer.evaluate([BATCH])
        trainer.step(BATCH)
        trained, scores = trainer.params, trainer.evaluate([BATCH])
    assert isinstance(trained[0], Dense) and trained[0].w.shape == (4, 3)
    assert trained[1].mean.any() and before != scores
    with compiled(trained) as again:
        kinds = {v.name: (v.kind, v.decay) for v in again.graph("source").variables.values()}
        assert again.evaluate([BATCH]) == scores
    assert kinds["layers.1.mean"][0] == kinds["layers.1.var"][0] == "state"
    assert kinds["layers.0.w"] == ("param", True) and kinds["layers.0.b"] == ("param", False)


def test_a_layer_that_is_in_the_tree_twice_is_one() -> None:
    shared = Dense(4, 4)
    model = Sequential(shared, nn.relu, Sequential(shared, Dense(4, 3)))
    with compiled(model) as trainer:
        trainer.step(BATCH)
        params = trainer.params
        assert list(trainer.variables("param")) == [
            "layers.0.w", "layers.0.b", "layers.2.layers.1.w", "layers.2.layers.1.b",
        ]  # fmt: skip
    assert params[0] is params[2][0]


def test_a_layer_that_contains_itself_is_an_error() -> None:
    model = Sequential(Dense(4, 3))
    model.layers = (*model.layers, model)
    with pytest.raises(GraphcError, match="does it contain itself"):
        compiled(model)


def test_nodes_have_the_path_of_their_layer_as_scope() -> None:
    def step(model: Any, batch: Any) -> Any:
        logits = model["head"](model["block"](batch["x"]))
        return np.mean(nn.cross_entropy(logits, batch["y"]))

    model = {"block": Sequential(Dense(4, 4), Dropout(0.1)), "head": Dense(4, 3)}
    graph = graphc.trace(step, model, BATCH, optimizer=graphc.optim.sgd(0.1))
    scopes = {n.scope for n in graph.nodes.values()}
    named = {"block/layers.0/dense", "block/layers.1/dropout", "head/dense"}
    assert scopes == {"", "cross_entropy", "mean", *named}
    assert graph.nodes["logits"].scope == "head/dense"
    (drawn,) = (n.op for n in graph.nodes.values() if n.op.name == "random")
    assert drawn.attributes["key"] == "block/layers.1/dropout"
    assert print_ir(parse_ir(print_ir(graph))) == print_ir(graph)


def test_a_model_of_layers_is_the_step_that_is_written_by_hand() -> None:
    def by_hand(p: Any, batch: Any) -> Any:
        first, _, last = p["layers"]
        logits = nn.relu(batch["x"] @ first["w"] + first["b"]) @ last["w"] + last["b"]
        return np.mean(nn.cross_entropy(logits, batch["y"]))

    def step(model: Any, batch: Any) -> Any:
        logits = model(batch["x"])
        return np.mean(nn.cross_entropy(logits, batch["y"]))

    step.__name__ = "by_hand"
    plain = {"layers": [hand(4, 5), None, hand(5, 3)]}
    model = Sequential(Dense(4, 5), nn.relu, Dense(5, 3))
    adam = graphc.optim.adam(1e-2)
    with (
        graphc.compile(step, model, BATCH, optimizer=adam) as one,
        graphc.compile(by_hand, plain, BATCH, optimizer=adam) as other,
    ):
        for _ in range(3):
            assert one.step(BATCH) == other.step(BATCH)
        assert one.params_sha256() == other.params_sha256()
        for stage in ("source", "partition"):
            assert without_scopes(one.graph(stage)) == without_scopes(other.graph(stage))


def hand(inputs: int, outputs: int) -> dict[str, Any]:
    init = graphc.init
    return {
        "w": graphc.param((inputs, outputs), init=init.glorot_uniform()),
        "b": graphc.param(outputs, init=init.zeros(), decay=False),
    }


def without_scopes(graph: graphc.Graph) -> list[list[str]]:
    text = re.sub(r" scope \S+", "", print_ir(graph))
    return [line.split() for line in text.splitlines()]


def test_a_checkpoint_of_a_model_resumes_it(tmp_path: Any) -> None:
    def model() -> Any:
        return Sequential(Dense(4, 5), BatchNorm(5), Dropout(0.3), nn.relu, Dense(5, 3))

    with compiled(model()) as whole:
        losses = [whole.step(BATCH)["loss"] for _ in range(4)]
    with compiled(model()) as first:
        first.step(BATCH), first.step(BATCH)
        first.save(tmp_path / "a.safetensors")
    with compiled(model()) as second:
        second.load(tmp_path / "a.safetensors")
        assert [second.step(BATCH)["loss"] for _ in range(2)] == losses[2:]


def test_layers_are_called_in_a_traced_function_only() -> None:
    with pytest.raises(GraphcError, match="the layer Embedding is called outside a traced"):
        Embedding(3, 2)(np.array([1]))


def test_a_layer_shows_its_settings_not_its_arrays() -> None:
    model = Sequential(Dense(64, 10), nn.relu, Dropout(0.1), Dense(10, 3, bias=False))
    assert (
        repr(model)
        == "Sequential(Dense(64, 10), relu, Dropout(rate=0.1), Dense(10, 3, bias=False))"
    )


MISTAKES: list[tuple[Any, str]] = [
    (lambda: Sequential(Dense(4, 5), Dense(6, 3)), r"in layer 'layers.1', Dense\(6, 3\) of \(6, 5\): shapes"),
    (lambda: Dense(5, 3), r"in layer Dense\(5, 3\) of \(6, 4\): shapes"),
    (lambda: Sequential(Dense(4, 3), "relu"), r"takes layers and functions, not 'relu'(.|\n)*write nn.relu"),
    (lambda: Sequential(Dense(4, 3), Dropout), r"make one: Dropout\(...\)"),
    (lambda: Sequential(Dense(4, 3), BatchNorm(4)), r"x \(6, 3\) has f32\[3\] for each, and the states are f32\[4\]"),
    (lambda: Conv2d(4, 6, 3, groups=4), "inputs and outputs are multiples of groups"),
    (lambda: MultiHeadAttention(10, 4), r"MultiHeadAttention\(10, 4\): the width is a multiple of heads"),
]  # fmt: skip


@pytest.mark.parametrize("make, message", MISTAKES)
def test_a_mistake_is_told_with_the_layer(make: Any, message: str) -> None:
    with pytest.raises(GraphcError, match=message):
        compiled(make())


def test_a_list_of_layers_is_a_sequence_too() -> None:
    model = Sequential([Dense(4, 5), nn.relu, Dense(5, 3)])
    assert len(model) == 3 and list(model)[1] is nn.relu
    with compiled(model) as trainer:
        assert next(iter(trainer.variables("param"))) == "layers.0.w"


@pytest.mark.parametrize(
    "name, advice",
    [("Linear", "write Dense"), ("Conv2D", "Conv2d"), ("Conv2DTranspose", "ConvTranspose2d"),
     ("BatchNorm2d", "write BatchNorm"), ("MaxPooling2D", "write MaxPool"), ("ReLU", "write nn.relu"),
     ("Denes", "did you mean 'Dense'")],
)  # fmt: skip
def test_other_names_of_layers_lead_here(name: str, advice: str) -> None:
    with pytest.raises(AttributeError, match=f"(?s)no layer '{name}'.*{advice}"):
        getattr(graphc.layers, name)
