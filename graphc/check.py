"""Check that a distributed program computes what the single device does.

The yardstick is the single device's own rounding: the step is also run in f64, and a distributed
run may differ from the single-device run by no more than `SLACK` times what the single-device run
differs from f64 (plus a few units in the last place). Replicas that meet every few steps make
another training than the single device, so they are compared with themselves in the reference
interpreter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphc.builder import Builder, Value
from graphc.driver import compile_module
from graphc.graph import Graph, Node
from graphc.module import Module
from graphc.op import Op
from graphc.ops.source import Random
from graphc.periodic import periodicity
from graphc.runtime.data import Dataset
from graphc.runtime.trainer import Trainer, first_values
from graphc.strategy import OneDevice, Strategy
from graphc.types import F64, DType, TensorType, Type

Array = NDArray[Any]
SLACK = 4.0
LAST_PLACES = 64 * 2.0**-24
ONE, INTERPRETED = "one device", "the reference interpreter"


@dataclass(frozen=True)
class Row:
    """One strategy's run against the single device, or what `against` says.

    difference: the largest difference of a variable, relative to the variable's largest value
    allowed:    the same measure of the single device against f64, times SLACK
    """

    strategy: str
    devices: int
    loss: float
    difference: float
    allowed: float
    params_sha256: str
    against: str = ONE

    @property
    def equal(self) -> bool:
        return self.difference <= self.allowed


def check_strategies(
    module: Module,
    strategies: Sequence[Strategy],
    data: Dataset,
    batch: int,
    steps: int,
    backend: str = "numpy",
    shuffle_seed: int | None = None,
) -> Iterator[Row]:
    """One row per strategy, the single device first; all start from the same variables."""
    batches = take(data, batch, steps, shuffle_seed)
    one = compile_module(module, OneDevice())
    values = first_values(one)
    wide = widened(module)
    single, loss, sha = _run(one, backend, values, batches)
    exact, *_ = _run(compile_module(wide, OneDevice()), backend, values, batches)
    rounding = _allowed(single, exact)
    yield Row(one.strategy, 1, loss, 0.0, rounding, sha)
    for strategy in strategies:
        plan = compile_module(module, strategy)
        found, loss, sha = _run(plan, backend, values, batches)
        want, allowed, against = single, rounding, ONE
        if periodicity(strategy) is not None:
            want, *_ = _run(plan, "reference", values, batches)
            exact, *_ = _run(compile_module(wide, strategy), "reference", values, batches)
            allowed, against = _allowed(want, exact), INTERPRETED
        difference = _difference(found, want)
        yield Row(plan.strategy, plan.devices, loss, difference, allowed, sha, against)


def _allowed(found: Mapping[str, Array], exact: Mapping[str, Array]) -> float:
    return SLACK * _difference(found, exact) + LAST_PLACES


def take(data: Dataset, batch: int, steps: int, seed: int | None) -> list[dict[str, Array]]:
    """The first batches that a run of so many steps sees, over several epochs if need be."""
    found: list[dict[str, Array]] = []
    epoch = 0
    while len(found) < steps and len(data):
        found += data.batches(batch, seed, epoch)
        epoch += 1
    return found[:steps]


def _run(
    plan: Any, backend: str, values: Mapping[str, Array], batches: Sequence[Mapping[str, Array]]
) -> tuple[dict[str, Array], float, str]:
    types = plan.programs["evaluate"].variable_types
    start = {name: np.asarray(a, types[name].dtype.numpy) for name, a in values.items()}
    inputs = plan.training.inputs
    loss = float("nan")
    with Trainer(plan, backend, values=start) as trainer:
        for batch in batches:
            fed = {n: np.asarray(batch[n], t.dtype.numpy) for n, t in inputs.items()}
            loss = trainer.step(fed)["loss"]
        return trainer.variables(), loss, trainer.params_sha256()


def _difference(a: Mapping[str, Array], b: Mapping[str, Array]) -> float:
    worst = 0.0
    for name, x in a.items():
        y = b[name].astype(np.float64)
        scale = float(np.max(np.abs(y), initial=0.0)) or 1.0
        gap = np.max(np.abs(x.astype(np.float64) - y), initial=0.0)
        worst = max(worst, float(gap) / scale)
    return worst


# -- the same step in f64 --------------------------------------------------------------------------


def widened(module: Module) -> Module:
    """The module with every float in f64; random draws keep their own dtype's numbers."""
    return replace(
        module,
        train=_wide_graph(module.train),
        evaluate=_wide_graph(module.evaluate),
        init=_wide_init(module.init),
    )


def _wide(dtype: DType) -> DType:
    return F64 if dtype.kind == "f" else dtype


def _wide_type(t: Type) -> Type:
    return replace(t, dtype=_wide(t.dtype)) if isinstance(t, TensorType) else t


def _wide_graph(graph: Graph) -> Graph:
    f = Builder.like(graph)
    f.variables = {
        v.name: replace(v, type=replace(v.type, dtype=_wide(v.type.dtype)))
        for v in graph.variables.values()
    }
    to: dict[str, str] = {}
    for node in graph:
        to[node.name] = _wide_node(f, node, to)
    return replace(
        f.build(),
        outputs={k: to[v] for k, v in graph.outputs.items()},
        updates={k: to[v] for k, v in graph.updates.items()},
        objectives=tuple(replace(o, loss=to[o.loss]) for o in graph.objectives),
    )


def _wide_node(f: Builder, node: Node, to: Mapping[str, str]) -> str:
    operands = [Value(f, to[x]) for x in node.operands]
    with f.at(node.origin):
        if isinstance(node.op, Random):
            drawn = f.add(node.op, operands, name=node.name)
            return f.to_dtype(drawn, F64).name
        given = _wide_type(node.type) if node.op.source else None
        return f.add(_wide_op(node.op), operands, name=node.name, type=given).name


def _wide_op(op: Op) -> Op:
    floats = {k: F64 for k, v in op.attributes.items() if isinstance(v, DType) and v.kind == "f"}
    return replace(op, **floats) if floats else op  # type: ignore[type-var]


def _wide_init(graph: Graph) -> Graph:
    """First values are drawn as ever, and cast at the end."""
    f = Builder.like(graph, keep_nodes=True)
    for name, x in graph.outputs.items():
        value = Value(f, x)
        f.outputs[name] = f.to_dtype(value, _wide(value.dtype)).name
    return f.build()
