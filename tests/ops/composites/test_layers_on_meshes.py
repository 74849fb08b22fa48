"""Networks of composites train the same on any mesh: batch of 7, then a short one of 4, in f64."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from graphc import optim
from graphc.compiler.driver import compile_module
from graphc.frontend.module import Module
from graphc.ir.builder import Builder, Value
from graphc.ir.graph import Objective, Variable
from graphc.ir.types import F64, I32, DType, Extent, TensorType
from graphc.ops.initializers import HeNormal, Initializer, Normal, Ones, Zeros, initial_value
from graphc.ops.source import Input
from graphc.runtime.trainer import Trainer
from graphc.strategies import parse_strategy

B, BATCH = 7, Extent("batch")
Array = np.ndarray


class Model:
    """A step in one mode; `par` also notes the parameter's first value in `first`."""

    def __init__(self, training: bool, first: Builder) -> None:
        self.f, self.first = Builder(training=training), first

    def input(self, name: str, *rest: int, dtype: DType = F64) -> Value:
        t = TensorType((B, *rest), dtype, (BATCH, *[None] * len(rest)))
        return self.f.add(Input(name), type=t, name=name)

    def par(self, name: str, *shape: int, init: Initializer | None = None) -> Value:
        t = TensorType(shape, F64)
        made = initial_value(self.first, init or HeNormal(), name, t)
        self.first.outputs.setdefault(name, made.name)
        return self.f.declare(Variable(name, t))


def cnn(m: Model) -> Value:
    f, x, y = m.f, m.input("x", 8, 8, 1), m.input("y", dtype=I32)
    h = f.relu(f.conv2d(x, m.par("w1", 3, 3, 1, 4), m.par("b1", 4, init=Zeros())))
    h = f.dropout(f.flatten(f.avg_pool(h, 3, 2, "same"), keep=1), 0.25)
    return f.mean(f.cross_entropy(f.dense(h, m.par("w2", 64, 5), m.par("b2", 5)), y))


def normalized_cnn(m: Model) -> Value:
    f, x, y = m.f, m.input("x", 8, 8, 1), m.input("y", dtype=I32)
    h = f.batch_norm(f.conv2d(x, m.par("w1", 3, 3, 1, 4)), m.par("s", 4, init=Ones()))
    h = f.flatten(f.max_pool(f.relu(h)), keep=1)
    return f.mean(f.cross_entropy(f.dense(h, m.par("w2", 64, 5)), y))


def gpt(m: Model) -> Value:
    f, x, y = m.f, m.input("x", 6, dtype=I32), m.input("y", 6, dtype=I32)
    table = m.par("e", 11, 8, init=Normal(0.5))
    h = f.embedding(table, x) + m.par("p", 6, 8)
    a = f.layer_norm(h, m.par("ls", 8, init=Ones()), m.par("lb", 8, init=Zeros()))
    h = h + f.multi_head_attention(a, m.par("qkv", 8, 24), m.par("o", 8, 8), 4, causal=True)
    a = f.gelu(f.dense(f.rms_norm(h), m.par("u", 8, 16)))
    h = h + f.dense(a, m.par("d", 16, 8))
    return f.mean(f.cross_entropy(f.matmul(h, f.transpose(table)), y))


def lstm(m: Model) -> Value:
    f, x, y = m.f, m.input("x", 3, 3), m.input("y", 2)
    h = c = f.zeros((f.size(x, 0), 5), F64)
    wx, wh, b = m.par("wx", 3, 20), m.par("wh", 5, 20), m.par("b", 20)
    for t in range(3):
        h, c = f.lstm_cell(f.getitem(x, (slice(None), t)), h, c, wx, wh, b)  # type: ignore[misc]
    return f.mse(f.dense(h, m.par("out", 5, 2)), y)


def images(rng: np.random.Generator, n: int) -> dict[str, Array]:
    return {"x": rng.normal(size=(n, 8, 8, 1)), "y": rng.integers(0, 5, n).astype(np.int32)}


def symbols(rng: np.random.Generator, n: int) -> dict[str, Array]:
    return {k: rng.integers(0, 11, (n, 6)).astype(np.int32) for k in "xy"}


def series(rng: np.random.Generator, n: int) -> dict[str, Array]:
    return {"x": rng.normal(size=(n, 3, 3)), "y": rng.normal(size=(n, 2))}


DATA: dict[Callable[[Model], Value], Callable[..., dict[str, Array]]] = {
    cnn: images, normalized_cnn: images, gpt: symbols, lstm: series,
}  # fmt: skip
OPTIMIZER = optim.chain(optim.clip_by_global_norm(1.0), optim.adamw(1e-2), optim.ema(0.9))


def module(model: Callable[[Model], Value]) -> Module:
    first, graphs = Builder("init"), []
    for training in (True, False):
        m = Model(training, first)
        loss = model(m)
        m.f.outputs["loss"] = loss.name
        params = tuple(v.name for v in m.f.variables.values() if v.kind == "param")
        if training:
            m.f.objectives.append(Objective(loss.name, OPTIMIZER, params))
        graphs.append(m.f.build())
    return Module(model.__name__, graphs[0], graphs[1], first.build())


@cache
def trained(model: Callable[[Model], Value], strategy: str) -> tuple[list[float], dict[str, Any]]:
    """The losses of three steps, and all variables after them."""
    plan = compile_module(module(model), parse_strategy(strategy))
    with Trainer(plan, "reference") as trainer:
        losses = [float(trainer.step(b)["loss"]) for b in batches(DATA[model])]
        return losses, trainer.variables()


def batches(make: Callable[..., dict[str, Array]]) -> Iterator[dict[str, Array]]:
    rng = np.random.default_rng(0)
    for n in (B, B, B - 3):
        yield make(rng, n)


HEADS = 'mirrored(2) * tensor_split(2, {"qkv": 1, "o": 0, "u": 1, "d": 0})'
CASES = [
    *[(model, s) for model in (cnn, gpt, lstm) for s in ("mirrored(3)", "accumulate(2)")],
    (cnn, "mirrored(2) * tensor_split(2)"), (gpt, HEADS), (lstm, "mirrored(2) * accumulate(2)"),
]  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.parametrize("model, strategy", CASES)
def test_network_trains_the_same_on_a_mesh(model: Any, strategy: str) -> None:
    losses, variables = trained(model, strategy)
    expected, whole = trained(model, "one_device()")
    np.testing.assert_allclose(losses, expected, rtol=1e-12)
    for name, value in whole.items():
        np.testing.assert_allclose(variables[name], value, atol=1e-9, err_msg=name)


NORMED = ["mirrored(3)", "tensor_split(2)", "accumulate(3)", "mirrored(2) * accumulate(3)"]


@pytest.mark.parametrize("strategy", NORMED)
def test_batch_norm_takes_the_whole_batchs_statistics_on_a_mesh(strategy: str) -> None:
    losses, variables = trained(normalized_cnn, strategy)
    expected, whole = trained(normalized_cnn, "one_device()")
    np.testing.assert_allclose(losses, expected, rtol=1e-12)
    assert {"batch_norm.mean", "batch_norm.var"} <= set(whole)
    for name, value in whole.items():
        np.testing.assert_allclose(variables[name], value, atol=1e-7, err_msg=name)
