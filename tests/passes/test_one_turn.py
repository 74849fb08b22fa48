"""A full batch with one leaf for each device runs in no turns; others still do."""

import pytest

from graphc.analysis.microbatch_loops import assigned
from graphc.compiler.driver import compile_module
from graphc.compiler.pipeline import differentiation, distribution, partitioning, run_passes
from graphc.frontend.language.load import module_of_source
from graphc.ir.graph import Graph
from graphc.lowering.program.program import Kernel, Loop, Program
from graphc.ops.collective import Keep, Microbatch, Recall
from graphc.passes.partitioning.one_turn import OneTurn
from graphc.plan.check import complaints
from graphc.plan.plan import parse
from graphc.runtime.trainer import Trainer
from graphc.strategies import parse_strategy
from graphc.testing.models import normalized

SOURCE = """
step net(x: f32[batch, 5], y: i32[batch]) {
    param w1: f32[5, 16] = he_normal()
    param w2: f32[16, 3] = he_normal()
    minimize mean(cross_entropy(batch_norm(x @ w1) @ w2, y)) with adam(0.05)
}
"""


def under(batch: int, strategy: str, *, short: bool = False) -> Graph:
    how = parse_strategy(strategy)
    passes = [*differentiation(), *distribution(how), *partitioning(how, short)]
    return run_passes(normalized(batch), passes)


def programs(strategy: str, batch: int = 24) -> dict[str, Program]:
    module = module_of_source(SOURCE, "net.gc", {"batch": batch})
    return dict(compile_module(module, parse_strategy(strategy)).step_programs)


def test_where_every_device_has_one_leaf_there_is_no_loop() -> None:
    graph = under(24, "mirrored(4) * reproducible(4)")
    assert str(graph.mesh) == "mesh(data=4, leaf=1; 4 leaves over data, leaf)"
    assert assigned(graph).loops == 0
    assert not any(isinstance(n.op, Keep | Recall) for n in graph)


def test_where_a_device_has_two_leaves_nothing_changes() -> None:
    graph = under(24, "mirrored(2) * reproducible(4)")
    assert graph.mesh.turns == 2 and assigned(graph).loops > 1
    assert OneTurn().run(graph) is graph


def test_a_short_batch_still_runs_in_turns() -> None:
    """A device whose leaf has no example takes none."""
    assert under(24, "mirrored(4) * reproducible(4)", short=True).mesh.time


def test_a_full_batch_with_fewer_examples_than_leaves_still_runs_in_turns() -> None:
    assert under(3, "mirrored(4) * reproducible(4)").mesh.time
    assert under(5, "mirrored(4) * reproducible(4)").mesh.time  # leaves of two: three are full
    assert not under(7, "mirrored(4) * reproducible(4)").mesh.time


def test_fewer_leaves_than_devices_can_hold_run_in_turns() -> None:
    """Three devices have two leaves each, but the last one."""
    graph = under(24, "mirrored(3) * reproducible(5)")
    assert graph.mesh.time


@pytest.mark.parametrize("strategy", [
    "mirrored(2) * reproducible(2)", "zero(2, stage=3) * reproducible(2)",
    "mirrored(2) * tensor_split(2) * reproducible(2, tiles=2)",
    "parameter_server(2, 2) * reproducible(2)",
])  # fmt: skip
def test_programs_with_and_without_turns_run_together(strategy: str) -> None:
    both = programs(strategy)
    full, short = both["train"], both["train.short"]
    assert not any(isinstance(x, Loop) for x in full.body)
    assert any(isinstance(x, Loop) for x in short.body)
    assert full.mesh == short.mesh.without_single_turns


def test_a_slice_of_a_turn_is_one_of_the_device() -> None:
    """What each leaf reads a part of, each device reads a part of."""
    both = programs("mirrored(2) * reproducible(2)")
    assert not any(
        isinstance(x, Kernel) and isinstance(x.op, Microbatch) for x in both["train"].body
    )


def test_a_plan_without_turns_is_read_again() -> None:
    module = module_of_source(SOURCE, "net.gc", {"batch": 24})
    plan = compile_module(module, parse_strategy("mirrored(2) * reproducible(2)"))
    again = parse(plan.text())
    assert not [x for p in again.step_programs.values() for x in complaints(p)]
    with Trainer(again) as trainer:
        assert trainer.engine.mesh == plan.mesh
