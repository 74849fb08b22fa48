"""Whole training steps under several strategies, on the backend and on the reference."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.compiler.pipeline import differentiation, distribution, partitioning, run_passes
from graphc.ir.builder import Builder
from graphc.ir.graph import Graph
from graphc.ir.placement import Axis, Mesh, Partial, Split
from graphc.ir.types import F64
from graphc.lowering.program.program import Program
from graphc.lowering.schedule.schedule import schedule
from graphc.ops.source import DimSize
from graphc.runtime.backends.backend import Backend
from graphc.runtime.backends.reference import interpret
from graphc.strategies import parse_strategy
from graphc.testing.models import classifier, classifier_data, first_values, param
from graphc.testing.placed_graphs import PlacedGraph
from graphc.testing.running import check_agrees, check_close, engine_of

STRATEGIES = [
    "one_device",
    "mirrored(3)",
    "accumulate(3)",
    "mirrored(2) * accumulate(2)",
    'tensor_split(2, {"w1": 1, "w2": 0})',
    'mirrored(2) * tensor_split(2, {"w1": 1})',
    "multi_worker_mirrored(2, 2)",
    'multi_worker_mirrored(2, 3, reduce="tree") * accumulate(2)',
]


def differentiated(graph: Graph) -> Graph:
    return run_passes(graph, differentiation())


def programs(graph: Graph, strategy: str) -> dict[str, Program]:
    """The program for full batches, and the one for short ones."""
    how = parse_strategy(strategy)
    placed = run_passes(graph, distribution(how))
    full = schedule(run_passes(placed, partitioning(how)), exact=True)
    return {"train": full, "train.short": schedule(run_passes(placed, partitioning(how, True)))}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_training_steps_agree_with_one_device(strategy: str, backend: Backend) -> None:
    graph = differentiated(classifier(12, dtype=F64))
    values, batch = first_values(graph), classifier_data(12)
    with engine_of(programs(graph, strategy), backend) as engine:
        engine.load_variables(values)
        for step in range(3):
            results = engine.step(batch, "train")
            wanted, updates = interpret(graph, batch, values)
            values |= updates
            what = f"{backend.name} under {strategy}, step {step}"
            check_close(results, wanted, what)
            check_close(engine.variables(), values, what)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_short_batch_counts_for_what_it_holds(strategy: str, backend: Backend) -> None:
    graph = differentiated(classifier(12, dtype=F64))
    values = first_values(graph)
    with engine_of(programs(graph, strategy), backend) as engine:
        for valid in (7, 1):
            batch, alone = classifier_data(valid), differentiated(classifier(valid, dtype=F64))
            engine.load_variables(values)
            results = engine.step(batch, "train", poison=True)
            wanted, updates = interpret(alone, batch, values)
            check_close(results, wanted, f"{backend.name} under {strategy}, {valid} examples")
            check_close(engine.variables(), values | updates, f"{strategy}, {valid} examples")


@pytest.mark.parametrize("turns", [1, 3])
def test_microbatches_may_be_streamed(turns: int, backend: Backend) -> None:
    g = PlacedGraph(Mesh((Axis("data", 2), Axis("turn", turns, "time"))))
    g.output("mean", _streamed_mean(g, 12))
    program = schedule(g.build())
    parts = [np.random.default_rng(i).normal(size=(n, 5)) for i, n in enumerate((4, 1, 2)[:turns])]
    with engine_of({"train": program}, backend) as engine:
        results = engine.step(iter([{"x": x} for x in parts]), poison=True)
    check_close(results, {"mean": np.concatenate(parts).mean(0)}, f"{turns} microbatches")


def _streamed_mean(g: PlacedGraph, n: int):  # type: ignore[no-untyped-def]
    from graphc.ir.types import Extent
    from graphc.ops.binary import Div
    from graphc.ops.collective import Accumulation, AllReduce
    from graphc.ops.reduce import ReduceSum
    from graphc.ops.shape import Broadcast

    split, part = Split(0), Partial()
    x = g.input("x", (n, 5), extent="batch", data=split, turn=split)
    total = g.node(ReduceSum((0,)), [g.mask(x, 0, 0)], data=part, turn=part)
    total = g.convert(g.convert(total, Accumulation("turn")), AllReduce("data"))
    count = g.node(Broadcast((5,)), [g.node(DimSize(n, Extent("batch"), F64), [])])
    return g.node(Div(), [total, count])


def test_variables_may_trade_places(backend: Backend) -> None:
    f = Builder("swap")
    a, b = param(f, "a", (3,), F64), param(f, "b", (3,), F64)
    f.outputs["old"] = a.name
    f.updates |= {"a": b.name, "b": a.name}
    values = {"a": np.arange(3.0), "b": np.arange(3.0) + 10}
    results = check_agrees(schedule(f.build()), backend, {}, values, what="swap")
    want = {"old": values["a"], "variable a": values["b"], "variable b": values["a"]}
    check_close(results, want, "swap")


def test_a_variable_is_read_before_it_is_written(backend: Backend) -> None:
    f = Builder("order")
    a, b = param(f, "a", (3, 3), F64), param(f, "b", (3, 3), F64)
    f.updates["a"] = (a * 2 + f.transpose(b, perm=(1, 0))).name
    f.updates["b"] = (f.transpose(a, perm=(1, 0)) - b).name
    f.outputs["sum"] = (a + b).name
    rng = np.random.default_rng(0)
    values = {"a": rng.normal(size=(3, 3)), "b": rng.normal(size=(3, 3))}
    results = check_agrees(schedule(f.build()), backend, {}, values, what="order", steps=1)
    old = values["a"], values["b"]
    want = {
        "sum": old[0] + old[1],
        "variable a": old[0] * 2 + old[1].T,
        "variable b": old[0].T - old[1],
    }
    check_close(results, want, "order")


def test_a_training_step_may_be_fed_microbatch_by_microbatch(backend: Backend) -> None:
    graph = differentiated(classifier(12, dtype=F64))
    values, batch = first_values(graph), classifier_data(9)
    alone = differentiated(classifier(9, dtype=F64))
    parts = [{k: v[i:j] for k, v in batch.items()} for i, j in ((0, 4), (4, 5), (5, 9))]
    with engine_of(programs(graph, "mirrored(2) * accumulate(3)"), backend) as engine:
        engine.load_variables(values)
        results = engine.step(iter(parts), "train", poison=True)
        wanted, updates = interpret(alone, batch, values)
        check_close(results, wanted, "a stream of microbatches")
        check_close(engine.variables(), values | updates, "a stream of microbatches")
