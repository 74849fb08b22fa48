"""What the documents say of strategies: what is inserted, sent, and needed."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
import transcripts

from graphc.compiler.driver import compile_module
from graphc.frontend.language.load import load_module, module_of_source
from graphc.ir.orders import Order
from graphc.lowering.memory.memory_plan import plan_memory
from graphc.lowering.program.program import Program
from graphc.ops.collective import Conversion
from graphc.plan.plan import Plan
from graphc.strategies import STRATEGIES, parse_strategy

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits.gc"
SCALARS = 2 * 4  # digits.gc has a loss and a report
M = 4 * (64 * 128 + 128 + 128 * 10 + 10)


@cache
def plan(strategy: str) -> Plan:
    return compile_module(load_module(DIGITS), parse_strategy(strategy))


def program(strategy: str) -> Program:
    return plan(strategy).programs["train"]


def inserted(strategy: str) -> Counter[str]:
    """The conversions of the training program, by op and, over devices, the order of its sums."""
    instructions = program(strategy).instructions
    ops = [getattr(x, "op", None) for x in instructions]
    return Counter(
        f"{op.name} {op.order}" if op.communicates and op.order is not Order.ADD_N else op.name
        for op in ops
        if isinstance(op, Conversion)
    )


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transcripts.workplace(tmp_path, monkeypatch)


def test_the_blocks_are_what_graphc_prints(update: bool) -> None:
    assert transcripts.check(ROOT / "spec" / "strategies.md", update) >= 5


def test_the_document_has_every_strategy() -> None:
    text = (ROOT / "spec" / "strategies.md").read_text(encoding="utf-8")
    assert all(f"\n## {name}\n" in text for name in STRATEGIES)


# -- what is inserted -----------------------------------------------------------------------------


def test_one_device_inserts_nothing() -> None:
    assert not inserted("one_device()")


def test_mirrored_inserts_one_all_reduce_for_each_gradient_and_scalar() -> None:
    assert inserted("mirrored(4)") == {"all_reduce": 4 + 2}


def test_sums_over_devices_are_trees_if_that_is_asked_for() -> None:
    assert inserted('mirrored(4, reduce="tree")') == {"tree_reduce tree": 4 + 2}


@pytest.mark.parametrize("strategy", ["one_device()", "mirrored(3)", "mirrored(4) * accumulate(2)"])
def test_reproducible_inserts_one_tree_for_each_sum(strategy: str) -> None:
    found = inserted(f"{strategy} * reproducible(32)")
    assert found == {
        "tree_reduce tree": 2 * (4 + 2)
    }  # a kernel in the loop, and a collective after it


@pytest.mark.parametrize("turns", [2, 3, 8])
def test_however_many_turns_there_is_one_exchange_for_each_gradient(turns: int) -> None:
    found = inserted(f"mirrored(2) * accumulate({turns})")
    assert found["all_reduce"] == found["accumulate"] == 4 + 2


HOMES = ["central_storage({})", "parameter_server({}, 1)"]


@pytest.mark.parametrize("strategy", HOMES)
def test_variables_at_home_are_pulled_and_their_gradients_reduced(strategy: str) -> None:
    wanted = {"pull": 4, "reduce": 4, "all_reduce": 2}
    assert inserted(strategy.format(4)) == wanted
    turns = inserted(strategy.format(4) + " * accumulate(3)")
    assert {k: turns[k] for k in wanted} == wanted


# -- what is sent ---------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 4, 8])
def test_mirrored_sends_as_the_document_says(n: int) -> None:
    assert program(f"mirrored({n})").sent_bytes == round(2 * (n - 1) / n * (M + SCALARS))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("n", [1, 2, 3, 8])
@pytest.mark.parametrize("strategy", HOMES)
def test_variables_at_home_are_sent_as_the_document_says(strategy: str, n: int) -> None:
    sent = program(strategy.format(n)).sent_bytes
    assert sent == round(2 * (n - 1) / n * (M + SCALARS))
    assert program(strategy.format(n) + " * accumulate(2)").sent_bytes == sent


@pytest.mark.parametrize("n", [2, 3, 8])
def test_servers_pull_scalars_from_each_other(n: int) -> None:
    counter = 8  # adam's step, which is at home on one of them
    expected = 2 * (n - 1) / n * (M + SCALARS) + (n - 1) / n * counter
    assert program(f"parameter_server({n}, 2)").sent_bytes == round(expected)


@pytest.mark.parametrize("strategy", ["one_device()", "accumulate(4)"])
def test_one_device_sends_nothing(strategy: str) -> None:
    assert program(strategy).sent_bytes == 0


@pytest.mark.parametrize(("n", "pieces"), [(1, 1), (2, 1), (4, 1), (8, 1), (32, 1), (3, 4), (5, 3)])
def test_reproducible_sends_its_pieces_as_the_document_says(n: int, pieces: int) -> None:
    sent = program(f"mirrored({n}) * reproducible(32)").sent_bytes
    assert sent == round((pieces + 1) * (n - 1) / n * (M + SCALARS))


PIECES = [(2, 1), (4, 1), (32, 1), (3, 4), (5, 3)]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("n", "pieces"), PIECES)
def test_reproducible_sends_the_pieces_of_a_part_to_its_owner(n: int, pieces: int) -> None:
    """A gradient is scattered: no device gets more than its part of it."""
    sent = (n - 1) / n * (pieces * M + (pieces + 1) * SCALARS)
    turns = -(-32 // n)
    for stage, gathered in ((1, M), (2, M), (3, turns * M)):
        found = program(f"zero({n}, stage={stage}) * reproducible(32)").sent_bytes
        assert found == pytest.approx(sent + (n - 1) / n * gathered, rel=0.01)


@pytest.mark.parametrize(("n", "pieces"), PIECES)
def test_reproducible_sends_the_pieces_home(n: int, pieces: int) -> None:
    sent = (n - 1) / n * (pieces * M + M + (pieces + 1) * SCALARS)
    assert program(f"central_storage({n}) * reproducible(32)").sent_bytes == round(sent)


def test_replicas_of_a_part_get_it_from_its_owner() -> None:
    n, copies = 8, 2  # 2 x 4 devices, with 4 parts of the slots
    sent = ((n - 1) + copies - 1) / n * M + 3 / 4 * M + 2 * (n - 1) / n * SCALARS
    found = program("mirrored(2) * zero(4) * reproducible(32)").sent_bytes
    assert found == pytest.approx(sent, rel=0.01)


@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_a_grid_leaves_the_parts_of_variables_even(n: int) -> None:
    one = program("one_device()").variable_bytes
    assert program(f"zero({n}, stage=3) * reproducible(32)").variable_bytes <= one / n * 1.05


def test_reproducible_inserts_one_sum_for_each_gradient_in_the_place_where_it_is_wanted() -> None:
    found = inserted("zero(3) * reproducible(32)")
    trees = {"reduce_scatter tree": 2 * 4, "tree_reduce tree": 2 * 2}  # in the loop, and after it
    assert found == trees | {"all_gather": 4, "tensor_split": 4}
    found = inserted("central_storage(3) * reproducible(32)")
    assert found == {"reduce tree": 2 * 4, "tree_reduce tree": 2 * 2, "pull": 4}


def test_turns_do_not_add_to_what_is_sent() -> None:
    assert program("mirrored(4) * accumulate(3)").sent_bytes == program("mirrored(4)").sent_bytes


def two_layers(batch: int) -> str:
    return f"""
        const batch = {batch}
        step two(x: f32[batch, 32], y: f32[batch, 16]) {{
            param w1: f32[32, 64] = he_normal()
            param w2: f32[64, 16] = he_normal()
            minimize mse(relu(x @ w1) @ w2, y) with sgd(0.1)
        }}
    """


@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("batch", [8, 64])
def test_two_layers_cut_against_each_other_send_one_activation(n: int, batch: int) -> None:
    """The input needs no gradient, so there is no exchange in the backward pass."""
    strategy = parse_strategy(f'tensor_split({n}, {{"w1": 1, "w2": 0}})')
    train = compile_module(module_of_source(two_layers(batch)), strategy).programs["train"]
    assert train.sent_bytes == round(2 * (n - 1) / n * 4 * batch * 16)


def test_groups_reduce_the_parts_of_cut_variables() -> None:
    n, m = 2, 2
    cut = f'mirrored({n}) * tensor_split({m}, {{"w1": 1, "b1": 0, "w2": 0}})'
    within = program(f'tensor_split({m}, {{"w1": 1, "b1": 0, "w2": 0}})').sent_bytes / n
    whole = 4 * 10
    gradients = 2 * (n - 1) / n * ((M - whole) / m + whole + SCALARS)
    assert program(cut).sent_bytes == pytest.approx(gradients + within, rel=0.01)


# -- zero -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 4, 8])
def test_zero_sends_as_the_document_says(n: int) -> None:
    """The second layer of digits.gc is the last, and the first needs no gradient of its operand."""
    sent = (n - 1) / n * (2 * M + 2 * SCALARS)
    for stage in (1, 2, 3):
        assert program(f"zero({n}, stage={stage})").sent_bytes == pytest.approx(sent, abs=64)


@pytest.mark.parametrize(("stage", "scatters", "gathers"), [(1, 1, 1), (2, 3, 1), (3, 3, 3)])
def test_turns_of_zero_send_as_the_document_says(stage: int, scatters: int, gathers: int) -> None:
    n = 4
    sent = (n - 1) / n * (scatters * M + gathers * M + 2 * SCALARS)
    found = program(f"zero({n}, stage={stage}) * accumulate(3)").sent_bytes
    assert found == pytest.approx(sent, abs=64)


@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_zero_keeps_its_part_of_the_state(n: int) -> None:
    one = program("one_device()").variable_bytes
    for stage, whole in ((1, 1), (2, 1), (3, 0)):
        kept = program(f"zero({n}, stage={stage})").variable_bytes
        assert kept <= (whole * M + (one - whole * M) / n) * 1.05


# -- what is needed -------------------------------------------------------------------------------


def test_variables_are_whole_under_mirrored_and_cut_under_tensor_split() -> None:
    one = program("one_device()").variable_bytes
    assert program("mirrored(4)").variable_bytes == one
    assert program('tensor_split(4, {"w1": 1, "b1": 0, "w2": 0})').variable_bytes < one / 4 * 1.02


def test_central_storage_keeps_variables_on_the_store_only() -> None:
    store, others = plan_memory(program("central_storage(4)")).footprints
    assert (store.devices, others.devices) == (1, 3)
    assert store.variables == program("one_device()").variable_bytes
    assert others.variables == 0 and others.arena >= M


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_servers_share_the_variables(servers: int) -> None:
    whole, largest = program("one_device()").variable_bytes, 3 * 4 * 64 * 128
    each = plan_memory(program(f"parameter_server(4, {servers})")).footprints
    assert sum(f.devices for f in each if f.variables) == servers
    assert sum(f.devices * f.variables for f in each) == whole
    assert max(f.variables for f in each) <= whole / servers + largest


@pytest.mark.parametrize("strategy", ["mirrored(4)", "accumulate(4)"])
def test_a_quarter_of_the_batch_needs_less_arena(strategy: str) -> None:
    part, whole = (plan_memory(program(s)).arena for s in (strategy, "one_device()"))
    assert part < 0.5 * whole


def test_the_printed_strategy_has_the_cuts_that_were_found() -> None:
    found = plan("tensor_split(2)").strategy
    assert found.startswith('tensor_split(2, cut={"w1": 1')
    assert str(parse_strategy(found)) == found


# -- asynchronous parameter servers ----------------------------------------------------------------


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_a_worker_pushes_and_pulls_the_params(servers: int) -> None:
    found = plan(f"parameter_server(4, {servers}, staleness=3)")
    assert found.sent_bytes == found.pulled_bytes == M
    assert found.training.variable_bytes == M


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_servers_together_hold_the_variables_once_and_scalars_once_each(servers: int) -> None:
    found = plan(f"parameter_server(4, {servers}, staleness=3)")
    held = [p.variable_bytes for p in found.servers]
    assert sum(held) == 3 * M + 8 * servers  # adam keeps two slots; the count of steps is i64
    largest = 3 * 4 * 64 * 128
    assert max(held) - min(held) <= largest


def test_accumulation_in_a_worker_does_not_add_to_what_is_sent() -> None:
    assert plan("parameter_server(2, 2, staleness=1) * accumulate(4)").sent_bytes == M


# -- replicas that step alone ----------------------------------------------------------------------

MEANS = SCALARS + 4  # the numerators, and the number of examples


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["local_sgd", "diloco"])
def test_replicas_that_step_alone_send_reports_and_at_meetings_the_params(
    name: str, n: int
) -> None:
    made = plan(f"{name}({n}, every=4)")
    assert made.programs["train"].sent_bytes == round(2 * (n - 1) / n * MEANS)
    assert made.programs["sync"].sent_bytes == round(2 * (n - 1) / n * M)
    assert made.sent_bytes == pytest.approx(2 * (n - 1) / n * (MEANS + M / 4), abs=1)


def test_the_seldomer_they_meet_the_less_they_send() -> None:
    sent = [plan(f"local_sgd(4, every={k})").sent_bytes for k in (1, 2, 4, 8)]
    at_meetings = [2 * (s - round(3 / 2 * MEANS)) for s in sent]
    assert [a / b for a, b in pairwise(at_meetings)] == pytest.approx([2, 2, 2], rel=0.01)


def test_diloco_needs_an_outer_copy_and_its_momentum() -> None:
    outer, inner = (program(f"{s}(2)").variable_bytes for s in ("diloco", "local_sgd"))
    assert outer - inner == 2 * M + 8  # and the count of meetings


def test_every_report_has_one_sum_for_each_part() -> None:
    assert inserted("local_sgd(4)") == {"all_reduce": 2 + 1}
