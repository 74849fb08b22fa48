"""Every conversion between placements, on 1 to 4 devices, with uneven and short shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from graphc.ir.op import Op
from graphc.ir.orders import Order
from graphc.ir.placement import Axis, Home, Mesh, Partial, ReduceOp, Split
from graphc.ir.types import F64, I64, Extent
from graphc.lowering.schedule.schedule import schedule
from graphc.ops.binary import Add
from graphc.ops.collective import (
    Accumulation,
    AllGather,
    AllReduce,
    AllToAll,
    Microbatch,
    Pull,
    Reduce,
    ReduceScatter,
    Stack,
    ToPartial,
    ToSplit,
)
from graphc.ops.indexing import Gather, ScatterAdd
from graphc.ops.reduce import ReduceMax, ReduceMin, ReduceSum
from graphc.ops.source import DimSize, Iota
from graphc.runtime.backends.backend import Backend
from graphc.testing.placed_graphs import PlacedGraph
from graphc.testing.running import check_agrees, check_close

if TYPE_CHECKING:
    from graphc.ir.builder import Value
    from graphc.ir.op import Array

Build = Callable[[PlacedGraph, int], "Value"]
S0, S1, P = Split(0), Split(1), Partial()
FILL: dict[ReduceOp, float] = {"sum": 0.0, "max": -np.inf, "min": np.inf}
REDUCTIONS: dict[ReduceOp, Callable[[tuple[int, ...]], Op]] = {
    "sum": ReduceSum,
    "max": ReduceMax,
    "min": ReduceMin,
}
REDUCE: dict[ReduceOp, Callable[..., Any]] = {"sum": np.sum, "max": np.max, "min": np.min}


def values(n: int) -> Array:
    return np.random.default_rng(n).normal(size=(n, 5))


def reduced(g: PlacedGraph, x: Value, op: ReduceOp) -> Value:
    """The reduction of x over its first, split dim: a partial value."""
    partial = {axis: Partial(op) for axis, state in x.type.placement if state == S0}
    return g.node(REDUCTIONS[op]((0,)), [g.mask(x, 0, FILL[op])], **partial)


# -- over space ----------------------------------------------------------------------------------


def all_gather(g: PlacedGraph, n: int) -> Value:
    return g.convert(g.input("x", (n, 5), extent="batch", data=S0), AllGather("data", 0))


def to_split(g: PlacedGraph, n: int) -> Value:
    x = g.convert(g.input("x", (n, 5), extent="batch"), ToSplit("data", 0))
    return g.convert(x, AllGather("data", 0))


def all_to_all(g: PlacedGraph, n: int) -> Value:
    x = g.convert(g.input("x", (n, 5), extent="batch", data=S0), AllToAll("data", 0, 1))
    return g.convert(x, AllGather("data", 1))


def all_to_all_back(g: PlacedGraph, n: int) -> Value:
    x = g.convert(g.input("x", (n, 5), extent="batch", data=S1), AllToAll("data", 1, 0))
    return g.convert(x, AllGather("data", 0))


def to_partial(g: PlacedGraph, n: int) -> Value:
    x = g.convert(g.input("x", (n, 5), extent="batch"), ToPartial("data"))
    return g.convert(x, AllReduce("data"))


@pytest.mark.parametrize("build", [all_gather, to_split, all_to_all, all_to_all_back, to_partial])
@pytest.mark.parametrize("devices", [1, 2, 3, 4])
def test_conversion_keeps_the_value(build: Build, devices: int, backend: Backend) -> None:
    for n, valid in sizes():
        g = PlacedGraph(Mesh((Axis("data", devices),)))
        g.output("y", build(g, n))
        batch = {"x": values(n)[:valid]}
        results = check_agrees(schedule(g.build()), backend, batch, what=build.__name__)
        check_close(results, {"y": batch["x"]}, f"{build.__name__} of {valid}")


def sizes() -> Iterator[tuple[int, int]]:
    """(capacity, valid) of the batch: even, uneven, short, with empty shards."""
    yield from ((8, 8), (7, 7), (8, 5), (3, 3), (4, 1))


@pytest.mark.parametrize("op", ["sum", "max", "min"])
@pytest.mark.parametrize("devices", [1, 2, 3, 4])
def test_partial_values_are_reduced(op: ReduceOp, devices: int, backend: Backend) -> None:
    for n, valid in sizes():
        g = PlacedGraph(Mesh((Axis("data", devices),)))
        x = g.input("x", (n, 5), extent="batch", data=S0)
        y = reduced(g, x, op)
        for order in Order:
            g.output(f"all_reduce {order}", g.convert(y, AllReduce("data", op, order)))
        scattered = g.convert(y, ReduceScatter("data", 0, op))
        g.output("reduce_scatter", g.convert(scattered, AllGather("data", 0)))
        batch = {"x": values(n)[:valid]}
        results = check_agrees(schedule(g.build()), backend, batch, what=f"reduce by {op}")
        want = REDUCE[op](batch["x"], axis=0)
        check_close(results, dict.fromkeys(results, want), f"reduce by {op} of {valid}")


@pytest.mark.parametrize("op", ["sum", "max", "min"])
@pytest.mark.parametrize("devices", [1, 2, 3, 4])
def test_partial_values_are_reduced_at_home(op: ReduceOp, devices: int, backend: Backend) -> None:
    for n, valid in sizes():
        g = PlacedGraph(Mesh((Axis("data", devices),)))
        y = reduced(g, g.input("x", (n, 5), extent="batch", data=S0), op)
        for coordinate in (0, devices - 1):
            for order in Order:
                home = g.convert(y, Reduce("data", coordinate, op, order))
                twice = g.node(Add(), [home, home], data=Home(coordinate))
                g.output(f"{order} {coordinate}", g.convert(twice, Pull("data", coordinate)))
        batch = {"x": values(n)[:valid]}
        results = check_agrees(schedule(g.build()), backend, batch, what=f"reduce by {op} at home")
        want = 2 * REDUCE[op](batch["x"], axis=0)
        check_close(results, dict.fromkeys(results, want), f"reduce by {op} of {valid} at home")


@pytest.mark.parametrize("home", [0, 1, 2])
def test_a_variable_at_home_is_read_and_written_there(home: int, backend: Backend) -> None:
    g = PlacedGraph(Mesh((Axis("data", 3), Axis("model", 2))))
    w = g.variable("w", (7, 5), data=Home(home), model=S1)
    g.update("w", g.node(Add(), [w, w], data=Home(home), model=S1))
    pulled = g.convert(w, Pull("data", home))
    g.output("before", g.convert(pulled, AllGather("model", 1)))
    results = check_agrees(schedule(g.build()), backend, {}, {"w": values(7)}, steps=2, what="home")
    check_close(results, {"before": 2 * values(7), "variable w": 4 * values(7)}, "at home")


def test_axes_of_a_mesh_are_told_apart(backend: Backend) -> None:
    g = PlacedGraph(Mesh((Axis("data", 2), Axis("model", 2))))
    x = g.input("x", (7, 5), data=S0, model=S0)
    inner = g.convert(x, AllGather("model", 0))
    g.output("x", g.convert(inner, AllGather("data", 0)))
    w = g.input("w", (7, 5), data=S0, model=S1)
    total = g.node(ReduceSum((0,)), [g.mask(w, 0, 0)], data=P, model=S0)
    g.output("total", g.convert(g.convert(total, AllReduce("data")), AllGather("model", 0)))
    batch = {"x": values(7), "w": values(7)}
    results = check_agrees(schedule(g.build()), backend, batch)
    want = {"x": batch["x"], "total": batch["w"].sum(0)}
    check_close(results, want, "two axes")


# -- over time -----------------------------------------------------------------------------------


def stack(g: PlacedGraph, n: int) -> Value:
    return g.convert(g.input("x", (n, 5), extent="batch", turn=S0), Stack("turn", 0))


def microbatch(g: PlacedGraph, n: int) -> Value:
    x = g.convert(g.input("x", (n, 5), extent="batch"), Microbatch("turn", 0))
    return g.convert(x, Stack("turn", 0))


def stack_then_gather(g: PlacedGraph, n: int) -> Value:
    x = g.input("x", (n, 5), extent="batch", data=S0, turn=S0)
    return g.convert(g.convert(x, Stack("turn", 0)), AllGather("data", 0))


@pytest.mark.parametrize("build", [stack, microbatch, stack_then_gather])
@pytest.mark.parametrize("turns", [1, 2, 3])
def test_turns_are_put_together(build: Build, turns: int, backend: Backend) -> None:
    for n, valid in sizes():
        g = PlacedGraph(Mesh((Axis("data", 2), Axis("turn", turns, "time"))))
        g.output("y", build(g, n))
        batch = {"x": values(n)[:valid]}
        results = check_agrees(schedule(g.build()), backend, batch, what=build.__name__)
        check_close(results, {"y": batch["x"]}, f"{build.__name__} of {valid}")


@pytest.mark.parametrize("op", ["sum", "max", "min"])
@pytest.mark.parametrize("turns", [1, 2, 3])
def test_turns_are_accumulated(op: ReduceOp, turns: int, backend: Backend) -> None:
    for n, valid in sizes():
        g = PlacedGraph(Mesh((Axis("data", 2), Axis("turn", turns, "time"))))
        x = g.input("x", (n, 5), extent="batch", data=S0, turn=S0)
        y = g.convert(reduced(g, x, op), Accumulation("turn", op))
        g.output("y", g.convert(y, AllReduce("data", op)))
        batch = {"x": values(n)[:valid]}
        results = check_agrees(schedule(g.build()), backend, batch, what=f"accumulate by {op}")
        check_close(results, {"y": REDUCE[op](batch["x"], axis=0)}, f"accumulate by {op}")


# -- positions and counts ------------------------------------------------------------------------


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_positions_are_global(devices: int, backend: Backend) -> None:
    for n, valid in sizes():
        g = PlacedGraph(Mesh((Axis("data", devices), Axis("turn", 2, "time"))))
        g.input("x", (n, 5), extent="batch", data=S0, turn=S0)
        iota = Iota((n, 5), 0, extents=(Extent("batch"), None))
        y = g.convert(g.node(iota, [], data=S0, turn=S0), Stack("turn", 0))
        g.output("y", g.convert(y, AllGather("data", 0)))
        results = check_agrees(schedule(g.build()), backend, {"x": values(n)[:valid]}, what="iota")
        want = np.repeat(np.arange(valid, dtype=np.int32)[:, None], 5, axis=1)
        check_close(results, {"y": want}, "iota")


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_rows_of_a_split_table_are_found(devices: int, backend: Backend) -> None:
    ids, table = np.array([0, 6, 3, 3, 5, 1]), values(7)
    g = PlacedGraph(Mesh((Axis("model", devices),)))
    t, i = g.variable("t", (7, 5), model=S0), g.input("i", (6,), I64)
    y = g.convert(g.node(Gather(0), [t, i], model=P), AllReduce("model"))
    g.output("y", y)
    back = g.node(ScatterAdd(0, 7), [i, y], model=S0)
    g.update("t", back)
    results = check_agrees(schedule(g.build()), backend, {"i": ids}, {"t": table}, what="gather")
    want = np.zeros_like(table)
    np.add.at(want, ids, table[ids])
    check_close(results, {"y": table[ids], "variable t": want}, "gather and scatter")


def test_the_count_of_examples_is_that_of_the_run(backend: Backend) -> None:
    g = PlacedGraph(Mesh((Axis("data", 2),)))
    g.input("x", (8, 5), extent="batch", data=S0)
    g.output("n", g.node(DimSize(8, Extent("batch"), F64), []))
    results = check_agrees(schedule(g.build()), backend, {"x": values(8)[:5]}, what="dim_size")
    assert results["n"] == 5
