"""Exchanges over slow links are under way while the backward pass goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from laws.generator import make, recipe
from laws.networks import mlp, under
from laws.overlap import complaints, products_meanwhile, slow_sums

from graphc.compiler.driver import compile_module
from graphc.frontend.language.load import load_module
from graphc.ir.types import F32
from graphc.lowering.program.program import Program
from graphc.lowering.schedule.schedule import schedule
from graphc.passes.partitioning.bucket import Bucket
from graphc.passes.partitioning.overlap import Overlap
from graphc.strategies import parse_strategy

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.gc"))
STRATEGIES = (
    "multi_worker_mirrored(2, 2)", 'mirrored(2, link="network")', 'zero(2, stage=2, link="host")',
    "multi_worker_mirrored(2, 2) * accumulate(2)", "multi_worker_mirrored(2, 2) * reproducible(8)",
)  # fmt: skip


def deep(strategy: str = "multi_worker_mirrored(2, 2)") -> Program:
    """A network of six layers with a bucket for each."""
    graph = mlp((64, 64, 64, 64, 64, 64, 8), batch=24)
    return schedule(under(graph, strategy), exact=True)


@pytest.fixture
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets that hold a layer."""
    plain = Bucket.run
    monkeypatch.setattr(Bucket, "run", lambda self, g: plain(Bucket(self.bytes, 20_000), g))


@pytest.mark.parametrize("strategy", STRATEGIES[:2])
def test_products_run_during_every_exchange_but_the_last(
    strategy: str, small_buckets: None
) -> None:
    part = deep(strategy).parts[0]
    sums = slow_sums(part, deep(strategy).mesh)
    assert len(sums) >= 6
    assert all(products_meanwhile(part, x) >= 1 for x in sums[:-1])


def test_without_the_pass_they_wait_for_each_other(
    small_buckets: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Overlap, "run", lambda self, graph: graph)
    program = deep()
    assert list(complaints(program))
    assert not all(products_meanwhile(program.parts[0], x) for x in slow_sums(program.parts[0], program.mesh)[:-1])  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.parametrize("file", EXAMPLES, ids=lambda f: f.stem)
def test_no_sum_of_an_example_is_waited_for_too_early(file: Path, small_buckets: None) -> None:
    for strategy in STRATEGIES:
        plan = compile_module(load_module(file), parse_strategy(strategy))
        assert not list(complaints(plan.programs["train"])), strategy


@pytest.mark.parametrize("start", [0, *(pytest.param(n, marks=pytest.mark.ci) for n in (40, 80))])
def test_no_sum_of_a_random_step_is_waited_for_too_early(start: int, small_buckets: None) -> None:
    for seed in range(start, start + 40):
        strategy = STRATEGIES[seed % 3]
        graph = make(recipe(seed), 12, F32).graph
        program = schedule(under(graph, strategy), exact=True)
        assert not list(complaints(program)), f"{seed}: {strategy}"


def test_over_memory_the_order_stays() -> None:
    graph = under(mlp((8, 8, 8)), "mirrored(2)")
    assert Overlap().run(graph) is graph
