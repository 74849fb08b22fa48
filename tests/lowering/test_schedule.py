"""From a placed graph to a program: what runs when, what is copied, what is written in place."""

import re

import pytest

from graphc.compiler.pipeline import differentiation, distribution, partitioning, run_passes
from graphc.ir.builder import Builder
from graphc.ir.graph import Graph
from graphc.ir.op import op_named
from graphc.ir.placement import Axis, Mesh, Partial, Split
from graphc.ir.types import F32
from graphc.lowering.memory.memory_plan import plan_memory
from graphc.lowering.program.program import (
    Feed,
    Instruction,
    Kernel,
    Program,
    Start,
    Wait,
    Write,
    writes,
)
from graphc.lowering.schedule.schedule import schedule
from graphc.ops.binary import Add
from graphc.ops.collective import Accumulation, AllReduce, Stack
from graphc.ops.reduce import ReduceSum
from graphc.ops.unary import Tanh
from graphc.plan.check import complaints
from graphc.strategies import parse_strategy
from graphc.support.errors import GraphcError
from graphc.testing.models import classifier, entry, param
from graphc.testing.placed_graphs import PlacedGraph

S0, P = Split(0), Partial()
MESH = Mesh((Axis("data", 2), Axis("turn", 3, "time")))


def nodes(part: tuple[Instruction, ...]) -> list[str]:
    return [x.node for x in part if isinstance(x, Kernel | Start)]


def under(strategy: str, graph: Graph, *, exact: bool = True) -> Program:
    how = parse_strategy(strategy)
    placed = run_passes(graph, [*differentiation(), *distribution(how), *partitioning(how)])
    return schedule(placed, exact=exact)


def accumulating() -> PlacedGraph:
    g = PlacedGraph(MESH)
    x = g.input("x", (12, 4), data=S0, turn=S0)
    w = g.variable("w", (4,))
    before = g.f.rename(g.node(Tanh(), [w]), "before")
    inside = g.f.rename(g.node(ReduceSum((0,)), [x], data=P, turn=P), "inside")
    total = g.f.rename(g.convert(inside, Accumulation("turn")), "total")
    everywhere = g.f.rename(g.convert(total, AllReduce("data")), "everywhere")
    g.output("y", g.f.rename(g.node(Add(), [everywhere, before]), "after"))
    return g


# -- parts ---------------------------------------------------------------------------------------


def test_what_varies_over_time_runs_in_the_loop() -> None:
    program = schedule(accumulating().build())
    (loop,) = program.loops
    assert loop.turns == 3
    assert nodes(loop.body) == ["inside", "total"]
    assert [x.source for x in loop.body if isinstance(x, Feed)] == ["x"]


def test_what_only_the_epilogue_needs_is_made_there() -> None:
    program = schedule(accumulating().build())
    assert nodes(program.prologue) == []
    assert nodes(program.epilogue) == ["before", "everywhere", "after"]


def test_what_the_loop_needs_and_does_not_vary_is_made_once_before_it() -> None:
    g = PlacedGraph(MESH)
    x = g.input("x", (12, 4), data=S0, turn=S0)
    bias = g.node(Tanh(), [g.variable("w", (4,))])
    spread = g.node(op_named("broadcast")(shape=(12, 4), at=(1,)), [bias], data=S0, turn=S0)  # type: ignore[call-arg]
    y = g.node(Add(), [x, spread], data=S0, turn=S0)
    total = g.convert(g.node(ReduceSum((0,)), [y], data=P, turn=P), Accumulation("turn"))
    g.output("y", g.convert(total, AllReduce("data")))
    program = schedule(g.build())
    assert nodes(program.prologue) == ["tanh"]
    (loop,) = program.loops
    assert "tanh" not in nodes(loop.body)


def test_without_time_there_is_no_loop() -> None:
    program = under("one_device", classifier())
    assert not program.loops
    assert program.prologue


def test_constants_are_made_once() -> None:
    f = Builder("constants")
    f.outputs["y"] = (entry(f, "x", (4, 2)) * 3.0).name
    program = schedule(f.build())
    assert nodes(program.setup) == ["const"]
    assert program.constant_bytes == 4


def test_a_count_is_a_constant_only_where_every_batch_is_full() -> None:
    graph = classifier()
    assert "dim_size" not in nodes(under("one_device", graph, exact=False).setup)
    assert "dim_size" in nodes(under("one_device", graph, exact=True).setup)


def test_only_a_program_that_may_run_short_has_counts() -> None:
    graph = classifier(12)
    assert under("one_device", graph, exact=True).counts == {}
    assert under("one_device", graph, exact=False).counts == {"batch": 12}


def test_a_value_from_after_the_loop_can_not_be_used_in_it() -> None:
    g = PlacedGraph(MESH)
    x = g.input("x", (12,), data=S0, turn=S0)
    total = g.convert(g.node(ReduceSum((0,)), [x], data=P, turn=P), Accumulation("turn"))
    total = g.convert(total, AllReduce("data"))
    spread = g.node(op_named("broadcast")(shape=(12,)), [total], data=S0, turn=S0)  # type: ignore[call-arg]
    y = g.node(Add(), [x, spread], data=S0, turn=S0)
    g.output("y", g.convert(g.convert(y, Stack("turn", 0)), op_named("all_gather")("data", 0)))  # type: ignore[call-arg]
    with pytest.raises(
        GraphcError, match=r"%broadcast runs in every microbatch .* uses %all_reduce"
    ):
        schedule(g.build())


def test_two_axes_over_time_are_accumulated_in_one_loop() -> None:
    g = PlacedGraph(Mesh((Axis("a", 2, "time"), Axis("b", 3, "time"))))
    x = g.input("x", (12,), a=S0, b=S0)
    part = g.node(ReduceSum((0,)), [x], a=P, b=P)
    g.output("y", g.convert(g.convert(part, Accumulation("a")), Accumulation("b")))
    program = schedule(g.build())
    (loop,) = program.loops
    assert loop.turns == 6
    assert nodes(loop.body) == ["reduce_sum", "accumulate.1"]


def test_a_value_accumulated_over_one_axis_of_two_can_not_be_used() -> None:
    g = PlacedGraph(Mesh((Axis("a", 2, "time"), Axis("b", 3, "time"))))
    x = g.input("x", (12,), a=S0, b=S0)
    half = g.convert(g.node(ReduceSum((0,)), [x], a=P, b=P), Accumulation("a"))
    g.output("y", g.convert(g.node(op_named("neg")(), [half], b=P), Accumulation("b")))
    with pytest.raises(GraphcError, match=r"%neg uses %accumulate, .* one axis of time only"):
        schedule(g.build())


# -- collectives ---------------------------------------------------------------------------------


def test_a_collective_is_waited_for_just_before_its_first_use() -> None:
    g = PlacedGraph(Mesh((Axis("data", 2),)))
    a, b = (g.input(n, (4,), data=S0) for n in "ab")
    x = g.convert(g.node(ReduceSum((0,)), [a], data=P), AllReduce("data"))
    y = g.convert(g.node(ReduceSum((0,)), [b], data=P), AllReduce("data"))
    g.output("z", g.node(Tanh(), [x]))
    g.output("y", y)
    kinds = [type(i).__name__ for i in schedule(g.build()).prologue]
    assert kinds == ["Feed", "Feed", "Kernel", "Start", "Kernel", "Start", "Wait", "Kernel", "Wait"]


def test_nothing_is_written_before_every_collective_is_done() -> None:
    program = under("mirrored(2) * accumulate(2)", classifier())
    waits = [i for part in program.parts for i, x in enumerate(part) if isinstance(x, Wait)]
    assert waits
    assert not any(isinstance(x, Start | Wait | Feed) for x in program.commit)


def test_what_a_collective_sends_is_dense() -> None:
    g = PlacedGraph(Mesh((Axis("data", 2),)))
    x = g.input("x", (4, 6), data=S0)
    turned = g.node(op_named("transpose")(perm=(1, 0)), [x], data=Split(1))  # type: ignore[call-arg]
    g.output("y", g.convert(turned, op_named("all_gather")("data", 1)))  # type: ignore[call-arg]
    program = schedule(g.build())
    (start,) = (x for x in program.prologue if isinstance(x, Start))
    assert program.buffers[start.operand].kind == "arena"


# -- views ---------------------------------------------------------------------------------------


def test_views_take_no_memory() -> None:
    f = Builder("views")
    x = entry(f, "x", (4, 6))
    f.transpose(x, perm=(1, 0))
    f.slice(x, dim=1, start=2, stop=5)
    f.reshape(x, shape=(2, 12))
    f.stop_gradient(x)
    program = schedule(f.build())
    views = {b.name: b for b in program.buffers if b.kind == "view"}
    assert set(views) == {"transpose", "slice", "reshape", "stop_gradient"}
    layouts = plan_memory(program).layouts
    assert layouts[views["transpose"].id].strides == (1, 6)
    assert (layouts[views["slice"].id].offset, views["slice"].shape) == (2, (4, 3))
    assert {program.buffers[b.base].name for b in views.values()} == {"x"}


def test_a_reshape_of_a_transpose_is_copied() -> None:
    f = Builder("views")
    turned = f.transpose(entry(f, "x", (4, 6)), perm=(1, 0))
    f.outputs["y"] = f.reshape(turned, shape=(24,)).name
    program = schedule(f.build())
    assert {b.name: b.kind for b in program.buffers}["reshape"] == "arena"


def test_a_view_of_a_view_has_the_memory_of_the_first() -> None:
    f = Builder("views")
    x = entry(f, "x", (4, 6))
    part = f.slice(f.transpose(x, perm=(1, 0)), dim=0, start=1, stop=6, step=2)
    f.outputs["y"] = part.name
    program = schedule(f.build())
    view = next(b for b in program.buffers if b.name == "slice")
    layout = plan_memory(program).layouts[view.id]
    assert (program.buffers[view.base].name, layout.offset, layout.strides) == ("x", 1, (2, 6))


# -- variables -----------------------------------------------------------------------------------


def written(program: Program) -> dict[str, str]:
    """How each variable is written: by a kernel in place, or by a copy."""
    names = {b: name for name, b in program.variables.items()}
    found = {}
    for x in program.commit:
        made = writes(x)
        if made in names:
            found[names[made]] = "copy" if isinstance(x, Write) else "in place"
    return found


def test_an_update_is_written_in_place() -> None:
    program = under("one_device", classifier())
    found = written(program)
    assert found.pop("step") == "copy"  # a later node reads the old count
    assert set(found.values()) == {"in place"}
    assert set(found) == set(program.variables) - {"step"}


def test_an_update_whose_old_value_is_still_needed_is_copied() -> None:
    f = Builder("late")
    a, b = param(f, "a", (3,)), param(f, "b", (3,))
    new = f.tanh(a)
    f.updates["a"] = new.name
    f.updates["b"] = (b + a * new).name
    assert written(schedule(f.build())) == {"a": "copy", "b": "in place"}


def test_an_update_that_reads_the_variable_turned_is_copied() -> None:
    f = Builder("turned")
    a = param(f, "a", (3, 3))
    f.updates["a"] = (a + f.transpose(a, perm=(1, 0))).name
    assert written(schedule(f.build())) == {"a": "copy"}


def test_an_update_that_is_no_elementwise_op_is_copied() -> None:
    f = Builder("product")
    a = param(f, "a", (3, 3))
    f.updates["a"] = f.einsum(a, a, spec="ab,bc->ac").name
    assert written(schedule(f.build())) == {"a": "copy"}


def test_a_variable_that_keeps_its_value_is_not_written() -> None:
    f = Builder("same")
    f.updates["a"] = param(f, "a", (3,)).name
    assert written(schedule(f.build())) == {}


def test_an_output_of_an_old_value_is_copied_before_the_write() -> None:
    f = Builder("old")
    a = param(f, "a", (3,))
    f.updates["a"], f.outputs["was"] = (a + 1.0).name, a.name
    program = schedule(f.build())
    kept = program.buffers[program.outputs["was"]]
    assert kept.kind == "arena"
    assert any(writes(x) == kept.id for x in program.prologue + program.epilogue)


def test_commit_begins_with_the_first_write() -> None:
    program = under("one_device", classifier())
    first, before = program.commit[0], program.parts[:-1]
    variables = set(program.variables.values())
    assert writes(first) in variables
    assert not any(writes(x) in variables for part in before for x in part)


# -- size ----------------------------------------------------------------------------------------


def shape_of(program: Program) -> list[tuple[str, str]]:
    """The program without its constants."""
    return [
        (type(x).__name__, type(x.op).__name__ if isinstance(x, Kernel | Start) else "")
        for x in program.instructions
    ]


@pytest.mark.parametrize("strategy", ["mirrored({n})", "mirrored({n}) * accumulate(2)"])
def test_the_number_of_devices_changes_constants_only(strategy: str) -> None:
    programs = [under(strategy.format(n=n), classifier(2048)) for n in (2, 8, 64, 1024)]
    assert len({tuple(shape_of(p)) for p in programs}) == 1


def test_accumulation_saves_the_memory_of_activations() -> None:
    each = (under(f"accumulate({k})", classifier(4096, width=64)) for k in (1, 4))
    arenas = [plan_memory(program).arena for program in each]
    assert arenas[1] <= 0.4 * arenas[0]


def test_a_split_variable_takes_its_part_of_the_memory() -> None:
    graph = classifier(8, width=256)
    whole = under("one_device", graph).variable_bytes
    part = under('tensor_split(4, {"w1": 1, "b1": 0, "w2": 0})', graph).variable_bytes
    assert part <= (1 / 4 + 0.1) * whole


def test_ten_thousand_nodes_are_scheduled_in_seconds() -> None:
    f = Builder("deep")
    y = entry(f, "x", (8, 8))
    for _ in range(5_000):
        y = f.tanh(y) + y
    f.outputs["y"] = y.name
    program = schedule(f.build())
    assert len(list(program.instructions)) == 10_001
    assert plan_memory(program).arena <= 4 * 8 * 8 * 4


# -- errors --------------------------------------------------------------------------------------


def test_an_output_that_is_not_whole_is_an_error() -> None:
    g = PlacedGraph(Mesh((Axis("data", 2),)))
    g.output("y", g.input("x", (4,), F32, data=S0))
    with pytest.raises(
        GraphcError, match=re.escape("output 'y' is %x, which is f32[4] {data:S(0)}")
    ):
        schedule(g.build())


def test_scheduled_programs_are_well_formed() -> None:
    for strategy in ("one_device", "mirrored(3)", "accumulate(3)", "mirrored(2) * tensor_split(2)"):
        assert not list(complaints(under(strategy, classifier(), exact=False)))
