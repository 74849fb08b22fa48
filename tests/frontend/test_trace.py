"""An ordinary NumPy function becomes a graph: trees, states, reports, objectives, names, places."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from inspect import signature
from math import erf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphc import nn, optim
from graphc.frontend.numpy import declare
from graphc.frontend.numpy.batch_arrays import arrays_for
from graphc.frontend.numpy.pytree import flatten
from graphc.frontend.numpy.trace import record, trace
from graphc.ir.orders import parse_orders
from graphc.ir.types import F32, F64, I32, Extent
from graphc.ops import initializers
from graphc.support.errors import GraphcError
from graphc.testing.compute import evaluate
from graphc.text import parse_ir, print_ir

X = np.arange(12.0, dtype=np.float32).reshape(3, 4) / 10
W = np.ones((4, 2), np.float32) / 3


# -- trees ----------------------------------------------------------------------------------------

Pair = namedtuple("Pair", "left right")


@dataclass(frozen=True)
class Layer:
    w: Any
    b: Any = None

    def __call__(self, x: Any) -> Any:
        return x @ self.w if self.b is None else x @ self.w + self.b


def test_leaves_are_named_by_their_path() -> None:
    tree = {"a": [1, (2, 3)], "p": Pair(4, {"k": 5}), "l": Layer(np.int32(6)), "n": None, 7: 8}
    leaves, form = flatten(tree, "params")
    names = ["a.0", "a.1.0", "a.1.1", "p.left", "p.right.k", "l.w", "7"]
    assert list(leaves) == names == list(form.names)
    assert form.build(leaves) == tree
    assert form == flatten({**tree, "a": [0, (0, 0)]}, "params")[1]
    assert form != flatten({**tree, "a": [0, [0, 0]]}, "params")[1]


def test_a_tree_without_names_is_named_by_its_root() -> None:
    assert list(flatten([1, 2], "batch")[0]) == ["batch.0", "batch.1"]
    assert list(flatten(1, "batch")[0]) == ["batch"]
    assert list(flatten(Pair(1, 2), "batch")[0]) == ["left", "right"]
    assert list(flatten({}, "batch")[0]) == list(flatten(None, "batch")[0]) == []


def test_parameters_and_batches_are_trees() -> None:
    params = {"layers": [Layer(np.eye(4, dtype=np.float32), np.zeros(4)), Layer(W)], "scale": 2.0}

    def step(params: Any, batch: Any) -> Any:
        h = batch["images"].left
        for layer in params["layers"]:
            h = layer(h)
        return np.mean(h * params["scale"]) + np.mean(batch["images"].right)

    recording = record(step, params, {"images": Pair(X, X[:, 0])})
    graph = recording.graph
    assert list(graph.variables) == ["layers.0.w", "layers.0.b", "layers.1.w", "scale"]
    assert list(graph.inputs) == ["images.left", "images.right"]
    assert graph.variables["layers.0.b"].type.dtype == F64
    assert graph.variables["scale"].type.dtype == F32
    assert graph["layers.0.w"].op.source == "variable"
    feeds = recording.values | recording.inputs({"images": Pair(X, X[:, 0])})
    loss = evaluate(graph, feeds)[graph.outputs["loss"]]
    np.testing.assert_allclose(loss, step(params, {"images": Pair(X, X[:, 0])}), rtol=1e-6)


def test_the_first_dim_of_the_batch_is_a_run_time_dim() -> None:
    batch = {"x": X, "table": np.zeros((5, 2)), "rate": np.float32(0.1), "k": 3}

    def step(params: Any, batch: Any) -> Any:
        return np.mean(batch["x"]) * batch["rate"] + batch["k"] + np.sum(batch["table"])

    graph = trace(step, {}, batch, whole=["table"], batch_dim="examples")
    assert graph["x"].type.extents == (Extent("examples"), None)
    assert graph["table"].type.extents == graph["rate"].type.extents == ()
    assert graph["k"].type.dtype == I32
    recording = record(step, {}, batch, whole=["table"])
    fed = recording.inputs({**batch, "rate": 0.5, "k": 4})
    assert (fed["rate"].dtype, fed["k"].dtype) == (np.float32, np.int32)


def test_a_batch_may_be_a_tuple_or_one_array() -> None:
    assert list(trace(lambda p, b: np.mean(b[0] + b[1]), {}, (X, X)).inputs) == [
        "batch.0",
        "batch.1",
    ]
    assert list(trace(lambda p, b: np.mean(b), {}, X).inputs) == ["batch"]


class _Marked(np.ndarray):
    """A subclass, whose arrays are fed as plain ones."""


@pytest.mark.parametrize(
    "batch",
    [
        {"x": X, "y": X[:, 0]},
        {"y": X[:, 0], "x": X},
        {"x": X[:2].astype(object), "y": X[:2, 0]},
        {"x": X.view(_Marked), "y": X[:, 0]},
        {"x": X, "y": 2},
        OrderedDict(x=X, y=X[:, 0]),
    ],
)
def test_arrays_in_a_dict_are_fed_as_they_would_be_one_by_one(batch: dict[str, Any]) -> None:
    recording = record(lambda p, b: np.mean(b["x"]) + np.mean(b["y"]), {}, {"x": X, "y": X[:, 0]})
    fed, expected = recording.inputs(batch), arrays_for(recording.graph, flatten(batch, "batch")[0])
    assert [*fed] == [*expected]
    for name, array in fed.items():
        assert type(array) is np.ndarray and array.dtype == expected[name].dtype
        np.testing.assert_array_equal(array, expected[name], strict=True)
    assert fed is not batch


@pytest.mark.parametrize("names", ["x", "xz", "xyz"])
def test_a_dict_with_other_names_is_no_batch(names: str) -> None:
    recording = record(lambda p, b: np.mean(b["x"]) + np.mean(b["y"]), {}, {"x": X, "y": X[:, 0]})
    with pytest.raises(GraphcError, match="G0806"):
        recording.inputs(dict.fromkeys(names, X))


# -- parameters -----------------------------------------------------------------------------------


def test_parameters_have_options() -> None:
    params = {
        "w": declare.param((4, 2), init=initializers.HeNormal()),
        "b": declare.param(np.zeros(2, np.float32), decay=False),
        "frozen": declare.param(np.ones(2), trainable=False),
        "ids": np.array([0, 1]),
    }

    def step(params: Any, batch: Any) -> Any:
        y = batch["x"] @ params["w"] + params["b"]
        return np.mean(np.take(y, params["ids"], axis=1) * params["frozen"])

    recording = record(step, params, {"x": X}, optimizer=optim.adam(lr=0.1))
    kinds = {v.name: (v.kind, v.decay) for v in recording.graph.variables.values()}
    assert kinds == {
        "w": ("param", True), "b": ("param", False), "frozen": ("state", True),
        "ids": ("state", True),
    }  # fmt: skip
    assert recording.graph.objectives[0].variables == ("w", "b")
    assert list(recording.first.outputs) == ["w"]
    assert recording.first[recording.first.outputs["w"]].type.shape == (4, 2)
    assert list(recording.values) == ["b", "frozen", "ids"]


# -- what the function says -----------------------------------------------------------------------


def test_losses_metrics_and_reports_are_outputs() -> None:
    def step(params: Any, batch: Any) -> Any:
        y = batch["x"] @ params["w"]
        declare.report("largest", np.max(y))
        declare.report("zero", 0)
        return np.mean(y), {"norms": {"w": np.linalg.norm(params["w"])}}

    graph = trace(step, {"w": W}, {"x": X}, optimizer=optim.sgd(lr=0.1))
    assert list(graph.outputs) == ["largest", "zero", "loss", "norms.w"]
    assert graph.objectives[0].loss == graph.outputs["loss"]


def test_state_goes_in_and_comes_out() -> None:
    def step(params: Any, state: Any, batch: Any) -> Any:
        mean = 0.9 * state["mean"] + 0.1 * np.mean(batch["x"], axis=0)
        return np.mean(batch["x"] - mean), {**state, "mean": mean, "n": state["n"] + 1}

    state = {"mean": np.zeros(4, np.float32), "n": 0, "fixed": np.ones(2)}
    graph = trace(step, {}, {"x": X}, state=state)
    assert {v.kind for v in graph.variables.values()} == {"state"}
    assert list(graph.updates) == ["mean", "n"]
    assert trace(step, {}, {"x": X}, state=state, training=False).updates == {}
    with_metrics = trace(lambda p, s, b: (*step(p, s, b), {"a": 1.0}), {}, {"x": X}, state=state)
    assert list(with_metrics.outputs) == ["loss", "a"]


def test_states_are_declared_and_written_by_name() -> None:
    def step(params: Any, batch: Any) -> Any:
        count = declare.state("count", 0)
        mean = declare.state("mean", np.zeros(4))
        declare.update("count", count + 1)
        declare.update("mean", 0.5 * (mean + np.mean(batch["x"], axis=0)))
        return np.mean(batch["x"])

    recording = record(step, {}, {"x": X})
    assert list(recording.graph.updates) == ["count", "mean"]
    assert recording.values["count"].dtype == np.int32
    assert recording.graph[recording.graph.updates["mean"]].type.dtype == F64


def test_a_state_is_written_once_and_only_a_state() -> None:
    def twice(params: Any, batch: Any) -> Any:
        declare.state("count", 0)
        declare.update("count", 1)
        declare.update("count", 2)

    with pytest.raises(GraphcError, match="'count' is written twice") as caught:
        record(twice, {}, {"x": X})
    assert "declare.update(" in caught.value.render()
    with pytest.raises(GraphcError, match="'w' is not a state"):
        record(lambda p, b: declare.update("w", 1.0), {"w": W}, {"x": X})


def test_the_mode_is_a_python_bool() -> None:
    def step(params: Any, batch: Any) -> Any:
        h = nn.dropout(batch["x"], rate=0.5)
        return np.mean(h) if declare.training() else np.max(h)

    train, evaluation = (trace(step, {}, {"x": X}, training=mode) for mode in (True, False))
    ops = [{node.op.name for node in graph} for graph in (train, evaluation)]
    assert "random" in ops[0] and "reduce_max" not in ops[0]
    assert "random" not in ops[1] and "reduce_max" in ops[1]
    assert train.updates and not evaluation.updates


def test_several_objectives_make_a_gan() -> None:
    def step(params: Any, batch: Any) -> None:
        fake = nn.random_normal((3, 2)) @ params["generator"]["w"]
        scores = [np.mean(x @ params["critic"]["w"]) for x in (batch["x"], fake)]
        declare.minimize(scores[1] - scores[0], optim.sgd(lr=0.1), over="critic")
        chain = [optim.clip_by_global_norm(1.0), optim.adam(lr=0.1)]
        declare.minimize(-scores[1], chain, over=["gen*"], order="tree")

    params = {"generator": {"w": W.T.copy()}, "critic": {"w": W}}
    graph = trace(step, params, {"x": X})
    assert list(graph.outputs) == ["loss", "loss2"]
    assert [o.variables for o in graph.objectives] == [("critic.w",), ("generator.w",)]
    assert graph.objectives[1].order == parse_orders("tree")
    with pytest.raises(GraphcError, match="'crtic' matches no parameter") as caught:
        trace(
            lambda p, b: declare.minimize(np.mean(p["w"]), optim.sgd(lr=0.1), over="crtic"),
            {"w": W}, {"x": X},
        )  # fmt: skip
    assert caught.value.code == "G0302" and "declare.minimize" in caught.value.render()


def test_evaluation_has_no_objectives() -> None:
    def step(params: Any, batch: Any) -> Any:
        return np.mean(batch["x"] @ params["w"])

    graph = trace(step, {"w": W}, {"x": X}, optimizer=optim.sgd(lr=0.1), training=False)
    assert graph.objectives == () and list(graph.outputs) == ["loss"]


# -- names and places -----------------------------------------------------------------------------


def test_nodes_have_the_users_line_and_name() -> None:
    def step(params: Any, batch: Any) -> Any:
        hidden = np.maximum(batch["x"] @ params["w"], 0)  # the activation
        hidden = hidden + 1
        same = hidden.reshape(3, 2)
        loss = nn.softplus(np.mean(same))
        return loss, {}

    graph = trace(step, {"w": W}, {"x": X})
    assert graph["hidden"].op.name == "maximum" and graph["hidden.1"].op.name == "add"
    assert graph.outputs["loss"] == "loss"
    product = next(node for node in graph if node.op.name == "einsum")
    assert product.origin is not None and product.origin.file == __file__
    line = Path(__file__).read_text().splitlines()[product.origin.line - 1]
    start = product.origin.col - 1
    assert line[start : start + product.origin.length] == 'batch["x"] @ params["w"]'


def test_columns_count_characters_not_bytes() -> None:
    def step(params: Any, batch: Any) -> Any:
        return np.mean({"größe": batch["x"]}["größe"] * 2)

    graph = trace(step, {}, {"x": X})
    node = next(n for n in graph if n.op.name == "mul")
    line = Path(__file__).read_text("utf-8").splitlines()[node.origin.line - 1]
    start = node.origin.col - 1
    assert line[start : start + node.origin.length] == '{"größe": batch["x"]}["größe"] * 2'


def test_scopes_name_what_is_made_inside() -> None:
    def step(params: Any, batch: Any) -> Any:
        with declare.scope("encoder"):
            h = nn.dropout(batch["x"], rate=0.5)
        return np.mean(h)

    graph = trace(step, {}, {"x": X})
    draw = next(node for node in graph if node.op.name == "random")
    assert draw.scope == "encoder/dropout" and draw.op.attributes["key"] == "encoder/dropout"


def test_the_seed_reaches_random_numbers() -> None:
    def step(params: Any, batch: Any) -> Any:
        return np.mean(nn.random_uniform((3,)))

    seeds = [trace(step, {}, {"x": X}, seed=s).fingerprint() for s in (0, 0, 1)]
    assert seeds[0] == seeds[1] != seeds[2]


def test_traced_graphs_print_and_parse_back() -> None:
    def step(params: Any, batch: Any) -> Any:
        y = np.einsum("bi,ij->bj", batch["x"], params["w"]) + np.array([0.5, 1.5], np.float32)
        return np.mean(y**2)

    graph = trace(step, {"w": W}, {"x": X}, optimizer=optim.sgd(lr=0.1))
    assert parse_ir(print_ir(graph, locs=True)) == graph


def test_tracing_twice_gives_the_same_graph() -> None:
    def step(params: Any, batch: Any) -> Any:
        return np.mean(nn.gelu(batch["x"] @ params["w"]))

    first, second = (trace(step, {"w": W}, {"x": X}) for _ in range(2))
    assert first.fingerprint() == second.fingerprint()
    assert list(first.nodes) == list(second.nodes)


# -- composites -----------------------------------------------------------------------------------


def test_nn_takes_arrays_dtypes_and_lists() -> None:
    def step(params: Any, batch: Any) -> Any:
        a = nn.where(batch["x"] > 0, batch["x"], np.zeros(4, np.float32))
        b = nn.cast(nn.one_hot(np.array([0, 2, 1]), 4), dtype=np.float32)
        c = nn.concat([a, b, np.ones((3, 1), np.float32)], axis=1)
        first, second = nn.split(c, [4], axis=1)
        return np.mean(nn.stop_gradient(first)) + np.mean(nn.erf(second))

    graph = trace(step, {}, {"x": X})
    value = evaluate(graph, {"x": X})[graph.outputs["loss"]]
    second = np.concatenate([np.eye(4)[[0, 2, 1]], np.ones((3, 1))], axis=1)
    wanted = np.mean(np.maximum(X, 0)) + np.mean(second) * erf(1)
    np.testing.assert_allclose(value, wanted, rtol=1e-6)


def test_nn_functions_are_documented() -> None:
    assert "attention" in nn.attention.__name__ and nn.attention.__doc__
    assert list(signature(nn.softmax).parameters) == ["x", "axis"]
