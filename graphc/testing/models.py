"""Small training steps that use what real ones use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphc.ir.builder import Builder, Value
from graphc.ir.graph import Graph, Objective, Variable
from graphc.ir.types import F32, I32, DType, Extent, TensorType
from graphc.ops.optimizers.update_rules import Adam
from graphc.ops.source import Input, ReadVariable

if TYPE_CHECKING:
    from graphc.ir.op import Array

BATCH = Extent("batch")


def param(f: Builder, name: str, shape: tuple[int, ...], dtype: DType = F32) -> Value:
    t = TensorType(shape, dtype)
    f.variables[name] = Variable(name, t)
    return f.add(ReadVariable(name), type=t, name=name)


def entry(f: Builder, name: str, shape: tuple[int, ...], dtype: DType = F32) -> Value:
    """An input whose first dim is the batch."""
    t = TensorType(shape, dtype, (BATCH, *[None] * (len(shape) - 1)))
    return f.add(Input(name), type=t, name=name)


def classifier(batch: int = 12, width: int = 8, dtype: DType = F32) -> Graph:
    """A two-layer classifier with a report, to be trained by adam."""
    f = Builder("classifier")
    x, labels = entry(f, "x", (batch, 6), dtype), entry(f, "labels", (batch,), I32)
    w1, b1 = param(f, "w1", (6, width), dtype), param(f, "b1", (width,), dtype)
    w2 = param(f, "w2", (width, 5), dtype)
    hidden = f.tanh(f.einsum(x, w1, spec="bk,kn->bn") + b1)
    logits = f.einsum(hidden, w2, spec="bk,kn->bn")
    loss = f.mean(f.cross_entropy(logits, labels))
    f.outputs["loss"] = loss.name
    f.outputs["accuracy"] = f.mean(f.eq(f.argmax(logits, axis=1), labels)).name
    f.objectives.append(Objective(loss.name, Adam(0.01), ("w1", "b1", "w2")))
    return f.build()


def masked_regression(batch: int = 12, width: int = 8, dtype: DType = F32) -> Graph:
    """A mean over the examples that a mask selects. Their number enters the forward pass, which
    makes it a barrier."""
    f = Builder("masked")
    x = entry(f, "x", (batch, 64), dtype)
    y, mask = entry(f, "y", (batch,), dtype), entry(f, "mask", (batch,), dtype)
    w, v = param(f, "w", (64, width), dtype), param(f, "v", (width,), dtype)
    count = f.sum(mask)
    hidden = f.tanh(f.einsum(x, w, spec="bk,kn->bn") / count)
    error = f.einsum(hidden, v, spec="bn,n->b") - y
    loss = f.sum(error * error * mask) / count
    f.outputs["loss"] = loss.name
    f.objectives.append(Objective(loss.name, Adam(0.01), ("w", "v")))
    return f.build()


def masked_data(batch: int, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    mask = np.arange(batch) % 3 != 1
    return {"x": rng.normal(size=(batch, 64)), "y": rng.normal(size=batch), "mask": 1.0 * mask}


def normalized(
    batch: int = 12, inner: int = 6, width: int = 8, wide: int = 8, dtype: DType = F32
) -> Graph:
    """A classifier with a batch norm in its first layer: it has barriers in the forward and in
    the backward pass."""
    f = Builder("normalized")
    x, labels = entry(f, "x", (batch, inner), dtype), entry(f, "labels", (batch,), I32)
    w1, scale = param(f, "w1", (inner, width), dtype), param(f, "scale", (width,), dtype)
    w2, w3 = param(f, "w2", (width, wide), dtype), param(f, "w3", (wide, 5), dtype)
    hidden = f.batch_norm(f.einsum(x, w1, spec="bk,kn->bn"), scale, name="norm")
    deep = f.tanh(f.einsum(f.relu(hidden), w2, spec="bk,kn->bn"))
    logits = f.einsum(deep, w3, spec="bk,kn->bn")
    loss = f.mean(f.cross_entropy(logits, labels))
    f.outputs["loss"] = loss.name
    f.objectives.append(Objective(loss.name, Adam(0.01), ("w1", "scale", "w2", "w3")))
    return f.build()


def classifier_data(batch: int, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(batch, 6))
    return {"x": x, "labels": rng.integers(0, 5, batch)}


def first_values(graph: Graph, seed: int = 1) -> dict[str, Array]:
    """Random params; slots and states with their fill."""
    rng = np.random.default_rng(seed)
    return {
        name: 0.3 * rng.normal(size=v.type.shape)
        if v.kind == "param"
        else np.full(v.type.shape, v.fill, v.type.dtype.numpy)
        for name, v in graph.variables.items()
    }
