"""Sums over two levels: parts go over the slow link, and every bit stays."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from graphc.compiler.driver import compile_module
from graphc.frontend.language.load import load_module, module_of_source
from graphc.ir.graph import Graph
from graphc.ir.orders import Order
from graphc.ir.placement import Axis, Mesh, Partial, R
from graphc.lowering.program.program import Program
from graphc.ops.collective import Conversion
from graphc.ops.conversion_table import conversion_over
from graphc.passes.partitioning.hierarchical import Hierarchical
from graphc.plan.plan import Plan
from graphc.runtime.data.dataset import Dataset
from graphc.runtime.trainer import Trainer
from graphc.strategies import parse_strategy
from graphc.testing.placed_graphs import PlacedGraph
from graphc.verify import verify

EXAMPLES = Path(__file__).parents[2] / "examples"
DIGITS = load_module(EXAMPLES / "digits.gc")
HOSTS = "multi_worker_mirrored(2, 2)"


@cache
def plan(strategy: str) -> Plan:
    return compile_module(DIGITS, parse_strategy(strategy))


def train(strategy: str) -> Program:
    return plan(strategy).programs["train"]


def collectives(program: Program) -> Counter[str]:
    ops = (getattr(x, "op", None) for x in program.instructions)
    return Counter(
        f"{op.name} {op.axis}" for op in ops if isinstance(op, Conversion) and op.communicates
    )


def test_a_sum_over_two_levels_sends_what_a_flat_one_does_and_half_over_the_slow_link() -> None:
    flat, found = train("mirrored(4)"), train(HOSTS)
    assert found.sent_bytes == flat.sent_bytes == 57_672
    assert found.sent_by_link == {"memory": 57_672 * 2 / 3, "network": 57_672 / 3}
    kinds = {"reduce_scatter local": 1, "all_reduce host": 1, "all_gather local": 1}
    assert collectives(found) == kinds


def test_where_all_links_are_alike_nothing_changes() -> None:
    found = train("mirrored(2) * mirrored(2)")
    assert collectives(found) == {"all_reduce data2": 6, "all_reduce data": 6}
    assert found.sent_by_link == {"memory": found.sent_bytes} == {"memory": 76_896}


# -- the pass -------------------------------------------------------------------------------------


def sums(mesh: Mesh, shape: tuple[int, ...], *axes: str, order: Order = Order.ADD_N) -> Graph:
    """A sum of a value over these axes, one after the other."""
    g = PlacedGraph(mesh)
    x = g.variable("x", shape, **{a: Partial() for a in axes})
    for axis in axes:
        step = conversion_over("space", axis, Partial(), R, order)
        assert step is not None
        x = g.convert(x, step)
    g.output("y", x)
    return g.f.build()


def steps(graph: Graph) -> list[str]:
    """The collectives of a graph: op, axis, dim."""
    return [
        f"{n.op.name} {n.op.axis} {n.op.attributes.get('dim', '')}".strip()
        for n in graph
        if isinstance(n.op, Conversion) and n.op.communicates
    ]


FAR, NEAR = Axis("far", 2, link="network"), Axis("near", 2)
TWO = Mesh((FAR, NEAR))


def after(mesh: Mesh, shape: tuple[int, ...], *axes: str, order: Order = Order.ADD_N) -> list[str]:
    """The collectives of a sum after the pass, which leaves a graph that obeys all laws."""
    graph = Hierarchical().run(sums(mesh, shape, *axes, order=order))
    verify(graph, "looped")
    return steps(graph)


def test_each_device_of_a_host_sends_its_part() -> None:
    found = after(TWO, (64, 8), "near", "far")
    assert found == ["reduce_scatter near 0", "all_reduce far", "all_gather near 0"]


def test_the_dim_is_scattered_whose_parts_are_as_equal_as_can_be() -> None:
    assert after(TWO, (3, 64), "near", "far")[0] == "reduce_scatter near 1"
    assert after(TWO, (1, 9, 25), "near", "far")[0] == "reduce_scatter near 2"


def test_a_sum_of_a_few_bytes_is_left_alone() -> None:
    assert after(TWO, (), "near", "far") == ["all_reduce near", "all_reduce far"]
    assert after(TWO, (2,), "near", "far") == ["all_reduce near", "all_reduce far"]


def test_of_three_levels_each_sends_a_part_to_the_next() -> None:
    mesh = Mesh((FAR, Axis("mid", 2, link="host"), NEAR))
    assert after(mesh, (64, 64), "near", "mid", "far") == [
        "reduce_scatter near 0", "reduce_scatter mid 1", "all_reduce far",
        "all_gather mid 1", "all_gather near 0",
    ]  # fmt: skip
    assert after(mesh, (64,), "near", "mid", "far") == [
        "reduce_scatter near 0", "all_reduce mid", "all_reduce far", "all_gather near 0",
    ]  # fmt: skip


def test_a_sum_that_begins_over_the_slow_link_keeps_its_order() -> None:
    assert after(TWO, (64, 8), "far", "near") == ["all_reduce far", "all_reduce near"]


def test_a_host_of_one_device_has_nothing_to_share() -> None:
    alone = Mesh((FAR, Axis("near", 1)))
    assert after(alone, (64, 8), "near", "far") == ["all_reduce near", "all_reduce far"]


def test_a_dim_that_another_axis_splits_is_left_whole() -> None:
    strategy = 'multi_worker_mirrored(2, 2) * tensor_split(2, {"w1": 0})'
    ops = [x.op for x in train(strategy).instructions if isinstance(getattr(x, "op", None), Conversion)]  # fmt: skip
    names = {f"{op.name} {op.axis} {op.attributes.get('dim', '')}".strip() for op in ops}
    assert {"reduce_scatter local 1", "all_gather local 1"} <= names


# -- bits -----------------------------------------------------------------------------------------


NET = module_of_source(
    """
step net(x: f32[batch, 5], y: i32[batch]) {
    param w1: f32[5, 16] = he_normal()
    param b1: f32[16]    = zeros()
    param w2: f32[16, 3] = he_normal()
    minimize mean(cross_entropy(batch_norm(relu(x @ w1 + b1)) @ w2, y)) with adam(0.05)
}
""",
    "net.gc", {"batch": 24},
)  # fmt: skip


def longer(*cases: object) -> list[object]:
    """Cases of the longer form of a test."""
    return [
        pytest.param(*(x if isinstance(x, tuple) else (x,)), marks=pytest.mark.ci) for x in cases
    ]


def data(n: int) -> Dataset:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 5)).astype(np.float32)
    return Dataset({"x": x, "y": rng.integers(0, 3, n).astype(np.int32)})


def trained(strategy: str, examples: int = 62, backend: str = "reference") -> str:
    """The parameters after an epoch."""
    with Trainer(compile_module(NET, parse_strategy(strategy)), backend) as trainer:
        trainer.fit(data(examples), 24, epochs=1, shuffle_seed=3)  # 24, 24, 14 of 62 examples
        return trainer.params_sha256()


@pytest.mark.parametrize("reduce", ["add_n", "tree", "accumulate"])
@pytest.mark.parametrize("sizes", ["2, 3", *longer("2, 2", "3, 4")])
def test_every_bit_stays(sizes: str, reduce: str, monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = f'multi_worker_mirrored({sizes}, reduce="{reduce}")'
    found = trained(strategy)
    monkeypatch.setattr(Hierarchical, "run", lambda self, graph: graph)
    assert found == trained(strategy)


@pytest.mark.parametrize(
    "strategy", ["zero(3, stage=3{})", *longer("mirrored(4{})", "zero(2, stage=2{})")]
)
def test_a_link_changes_no_bit(strategy: str) -> None:
    assert trained(strategy.format(', link="network"')) == trained(strategy.format(""))


@pytest.mark.ci
def test_every_bit_of_native_code_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    found = trained("multi_worker_mirrored(2, 3)", backend="numpy")
    monkeypatch.setattr(Hierarchical, "run", lambda self, graph: graph)
    assert found == trained("multi_worker_mirrored(2, 3)", backend="numpy")


@pytest.mark.parametrize(("hosts", "local"), [(3, 2), *longer((2, 2), (2, 4), (5, 1), (1, 4))])
def test_a_tree_over_hosts_of_a_power_of_two_is_the_tree_over_all_devices(
    hosts: int, local: int
) -> None:
    """If the shards of the batch are the same: a batch that is not full is divided twice."""
    flat = trained(f'mirrored({hosts * local}, reduce="tree")', examples=48)
    levels = f'multi_worker_mirrored({hosts}, {local}, reduce="tree")'
    assert trained(levels, examples=48) == flat


@pytest.mark.parametrize("sizes", ["2, 3", *longer("2, 2", "3, 2")])
def test_a_tree_over_leaves_is_the_same_on_any_hosts(sizes: str) -> None:
    found = trained(f"multi_worker_mirrored({sizes}) * reproducible(8)")
    assert found == trained("reproducible(8)")
