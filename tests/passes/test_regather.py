"""Stored variables: cut to be kept, whole around their uses, and let go again."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from graphc.compiler.driver import compile_module
from graphc.compiler.pipeline import differentiation, distribution, partitioning, run_passes
from graphc.frontend.language.load import module_of_source
from graphc.frontend.module import Module
from graphc.ir.graph import Graph
from graphc.lowering.memory.memory_plan import timeline_of
from graphc.lowering.memory.timeline import lives_of
from graphc.lowering.program.program import Kernel, Program, Start, Wait
from graphc.lowering.schedule.schedule import schedule
from graphc.ops.collective import AllGather, ReduceScatter
from graphc.passes.cleanup import Cse
from graphc.passes.partitioning.regather import Regather
from graphc.strategies import parse_strategy

WIDTH, LAYERS, BATCH = 64, 8, 32
LAYER = 4 * WIDTH * WIDTH
M = LAYERS * (LAYER + 4 * WIDTH)
STEP = 8  # bytes of the number of steps


def deep(optimizer: str = "adam(1e-3)") -> Module:
    """Eight equal layers with biases."""
    params = "\n".join(
        f"param w{i}: f32[{WIDTH}, {WIDTH}] = he_normal()\nparam b{i}: f32[{WIDTH}] = zeros()"
        for i in range(LAYERS)
    )
    layers = "\n".join(f"h{i + 1} = relu(h{i} @ w{i} + b{i})" for i in range(LAYERS))
    text = f"""
        step deep(x: f32[batch, {WIDTH}], y: f32[batch, {WIDTH}]) {{
            {params}
            h0 = x
            {layers}
            minimize mse(h{LAYERS}, y) with {optimizer}
        }}
    """
    return module_of_source(text, sizes={"batch": BATCH})


@cache
def train(strategy: str, optimizer: str = "adam(1e-3)") -> Program:
    return compile_module(deep(optimizer), parse_strategy(strategy)).programs["train"]


def gathers(program: Program) -> list[Start]:
    instructions = program.instructions
    return [x for x in instructions if isinstance(x, Start) and isinstance(x.op, AllGather)]


def most_gathered(program: Program) -> int:
    """The most bytes of gathered values that are there at a time."""
    lives = lives_of(timeline_of(program), ())
    spans = [(*lives[x.result][0], x.result) for x in gathers(program)]
    size = {b: program.buffers[b].bytes for _, _, b in spans}
    return max(sum(size[b] for f, to, b in spans if f <= at <= to) for at, _, _ in spans)


# -- what is kept ---------------------------------------------------------------------------------


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("stage", "whole", "cut"), [(1, 1, 2), (2, 1, 2), (3, 0, 3)])
@pytest.mark.parametrize("n", [2, 4, 8])
def test_a_device_keeps_its_part_of_what_is_cut(n: int, stage: int, whole: int, cut: int) -> None:
    """Of the parameters, and adam's two slots of each."""
    program = train(f"zero({n}, stage={stage})")
    assert program.variable_bytes == whole * M + cut * M // n + STEP


def test_a_part_of_a_dim_that_does_not_divide_is_padded() -> None:
    padded = -(-WIDTH // 3) * 3 / WIDTH
    assert train("zero(3, stage=3)").variable_bytes == round(3 * M * padded / 3) + STEP


def test_what_is_shorter_than_the_axis_is_whole() -> None:
    text = """
        step short(x: f32[batch, 2], y: f32[batch, 3]) {
            param w: f32[2, 3] = he_normal()
            param scale: f32 = ones()
            minimize mse(x @ w * scale, y) with adam(1e-3)
        }
    """
    module = module_of_source(text, sizes={"batch": 8})
    program = compile_module(module, parse_strategy("zero(4, stage=3)")).programs["train"]
    assert all(not t.placement.states for t in program.variable_types.values())


# -- what is whole at a time ----------------------------------------------------------------------


@pytest.mark.parametrize("turns", ["", " * accumulate(2)", " * mirrored(2)"])
def test_no_more_than_two_layers_are_whole_at_a_time(turns: str) -> None:
    program = train(f"zero(4, stage=3){turns}")
    assert most_gathered(program) <= 2 * (LAYER + 4 * WIDTH)


def test_all_layers_are_whole_without_the_pass() -> None:
    strategy = parse_strategy("zero(4, stage=3)")
    passes = [p for p in partitioning(strategy) if not isinstance(p, Regather)]
    graph = run_passes(deep().train, [*differentiation(), *distribution(strategy), *passes])
    assert len([n for n in graph if isinstance(n.op, AllGather)]) == 2 * LAYERS


def test_the_last_layer_is_still_there_when_the_backward_pass_begins() -> None:
    """w7 and w6 are kept, w0 and the biases have no use there: five are gathered again."""
    found = [x.node for x in gathers(train("zero(4, stage=3)"))]
    assert len(found) == 2 * LAYERS + (LAYERS - 3)
    assert {x for x in found if x.endswith(".1")} == {f"w{i}.data.1" for i in range(1, 6)}


def overlapped(program: Program) -> set[str]:
    """The gathers that a product is computed beside, while they are under way."""
    found, begun = set[str](), dict[int, str]()
    for x in program.instructions:
        match x:
            case Start(op=AllGather(), token=token, node=node):
                begun[token] = node
            case Wait(token=token):
                begun.pop(token, None)
            case Kernel(op=op) if op.name == "einsum":
                found |= set(begun.values())
    return found


@pytest.mark.parametrize("turns", ["", " * accumulate(2)"])
def test_a_layer_is_gathered_while_the_one_before_it_is_computed(turns: str) -> None:
    """Forward from the second on; backward those that are gathered again."""
    forward = {f"{x}{i}.data" for i in range(1, LAYERS) for x in "wb"}
    again = {f"w{i}.data.1" for i in range(1, LAYERS - 2)}
    found = overlapped(train(f"zero(4, stage=3){turns}"))
    assert {f"w{i}.data" for i in range(1, LAYERS)} <= found
    assert again <= found <= forward | again | {"b0.data"}


def test_without_ahead_nothing_is_gathered_beside_a_product() -> None:
    strategy = parse_strategy("zero(4, stage=3)")
    passes = [
        replace(p, prefetch=False) if isinstance(p, Regather) else p for p in partitioning(strategy)
    ]
    graph = run_passes(deep().train, [*differentiation(), *distribution(strategy), *passes])
    program = schedule(graph, exact=True)
    assert not overlapped(program)
    assert most_gathered(program) <= most_gathered(train("zero(4, stage=3)"))


def test_what_is_gathered_again_says_why() -> None:
    graph = partitioned("zero(4, stage=3)")
    why = graph["w1.data.1"].because
    assert why is not None and why.by == "regather" and "freed" in why.reason


def test_equal_gathers_are_not_joined_again() -> None:
    graph = partitioned("zero(4, stage=3)")
    assert len(Cse().run(graph)) == len(graph)


def test_gathers_stay_in_the_loop_over_turns() -> None:
    program = train("zero(4, stage=3) * accumulate(2)")
    _, loop, *_ = program.parts
    assert set(gathers(program)) <= {x for x in loop if isinstance(x, Start)}


def partitioned(strategy: str) -> Graph:
    how = parse_strategy(strategy)
    passes = [*differentiation(), *distribution(how), *partitioning(how)]
    return run_passes(deep().train, passes)


# -- gradients ------------------------------------------------------------------------------------


def scatters(part: object) -> int:
    return sum(isinstance(x, Start) and isinstance(x.op, ReduceScatter) for x in part)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("strategy", "inside"),
    [("zero(4)", False), ("zero(4, stage=2)", True), ('zero(4, stage=2, scatter="update")', False)],
)
def test_gradients_are_cut_in_every_turn_or_once(strategy: str, inside: bool) -> None:
    _, loop, after, _ = train(f"{strategy} * accumulate(2)").parts
    assert scatters(loop) == (2 * LAYERS if inside else 0)
    assert scatters(after) == (0 if inside else 2 * LAYERS)


def test_what_adds_up_cut_gradients_is_cut() -> None:
    def sums(strategy: str) -> int:
        program = train(f"{strategy} * accumulate(2)")
        kernels = [x for x in program.parts[1] if isinstance(x, Kernel)]
        made = {x.result for x in kernels if x.op.name == "accumulate"}
        return sum(program.buffers[b].bytes for b in made)

    assert sums("zero(4, stage=2)") < sums("zero(4)") / 4 + 1024


def test_the_norm_of_cut_gradients_takes_one_exchange_of_a_scalar() -> None:
    clipped = "clip_by_global_norm(1.0) | adam(1e-3)"
    plain, with_norm = train("zero(4, stage=2)"), train("zero(4, stage=2)", clipped)
    assert len(starts(with_norm)) == len(starts(plain)) + 1
    assert with_norm.sent_bytes == plain.sent_bytes + 6


def starts(program: Program) -> list[Start]:
    return [x for x in program.instructions if isinstance(x, Start)]
