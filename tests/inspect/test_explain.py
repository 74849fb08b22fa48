"""Why a node is there: every node answers; what it names is the cause, since without it the node is
gone; and the alternatives that are allowed are not cheaper."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from graphc.analysis.inserted import consumers_of, values_behind
from graphc.compiler.driver import compile_module
from graphc.compiler.pipeline import partitioning
from graphc.compiler.programs import resolved
from graphc.frontend.language.load import load_module
from graphc.inspect.explain.compiled import CompiledStep, compiled_step
from graphc.inspect.explain.explanation import explain
from graphc.inspect.explain.find import find_nodes
from graphc.inspect.explain.in_words import in_json, in_words, table
from graphc.ir.graph import Graph, Node
from graphc.ir.op import op_named
from graphc.passes.base import Pass
from graphc.passes.cleanup import Dce
from graphc.passes.partitioning.partition import Partition
from graphc.passes.placing.route import LATENCY
from graphc.strategies import parse_strategy
from graphc.support.errors import GraphcError

EXAMPLES = Path(__file__).parents[2] / "examples"
STRATEGIES = [
    "one_device()", "mirrored(3)", "mirrored(4) * accumulate(2)", "zero(2, 2)",
    "zero(4, 3) * accumulate(2)", "tensor_split(2)", "mirrored(2) * tensor_split(2)",
    "central_storage(2)", "reproducible(8) * mirrored(2) * accumulate(2)",
    "local_sgd(2, every=4)", "multi_worker_mirrored(2, 2)", "parameter_server(2, 2)",
]  # fmt: skip
SAMPLE = [
    ("linear", "multi_worker_mirrored(2, 2)"), ("linear", "zero(4, 3) * accumulate(2)"),
    ("linear", "local_sgd(2, every=4)"), ("linear", "central_storage(2)"),
]  # fmt: skip
ALL = [(f.stem, s) for f in sorted(EXAMPLES.glob("*.gc")) for s in STRATEGIES]
generated = pytest.mark.parametrize(("example", "strategy"), ALL)
sampled = pytest.mark.parametrize(("example", "strategy"), SAMPLE)


@cache
def step_of(example: str, strategy: str, program: str = "train") -> CompiledStep:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = load_module(EXAMPLES / f"{example}.gc")
        return compiled_step(module, parse_strategy(strategy), program)


# -- every node answers ----------------------------------------------------------------------------


def check_every_node_answers(example: str, strategy: str) -> None:
    step = step_of(example, strategy)
    for node in step.graph:
        e = explain(step, node.name)
        assert str(e.role) and e.memory == e.memory
        assert json.dumps(in_json(step, node.name)) and in_words(e)
        if node.because is not None:
            assert e.because and e.because.by and e.because.rule
            assert e.consumer is not None and e.consumers, f"nobody needs %{node.name}"
            assert not e.choices or [c.chosen for c in e.choices].count(True) >= 1


@sampled
def test_every_node_answers(example: str, strategy: str) -> None:
    check_every_node_answers(example, strategy)


@pytest.mark.slow
@generated
def test_every_node_of_every_example_answers(example: str, strategy: str) -> None:
    check_every_node_answers(example, strategy)


# -- without its cause a node is gone --------------------------------------------------------------


def check_causes(example: str, strategy: str) -> None:
    step = step_of(example, strategy)
    assert step.placed is not None
    passes = partitioning(resolved(step.strategy, step.placed))
    for name in step.inserted():
        after = without(step.placed, consumers_of_all(step.graph, name))
        for p in (*passes, Dce()):
            after = p.run(after)
        left = [n.name for n in after if same(n, after, step.graph[name], step.graph)]
        assert not left, f"%{name} is still there: {step.graph[name].because}"


def consumers_of_all(graph: Graph, name: str) -> list[tuple[str, str]]:
    """With those of its copies, in later loops or gathered again: without the first, a later one
    would have its name."""
    node, values = graph[name], values_behind(graph, name)
    copies = [
        n.name for n in graph
        if n.because and n.type == node.type and values_behind(graph, n.name) == values
    ]  # fmt: skip
    copied = any(graph[x].because.by in ("loops", "regather") for x in copies)  # type: ignore[union-attr]
    return [(c.name, c.end) for x in (copies if copied else [name]) for c in consumers_of(graph, x)]


def without(graph: Graph, consumers: list[tuple[str, str]]) -> Graph:
    """The placed graph, in which these nodes are given from outside, and these results are not."""
    gone = {name for name, end in consumers if not end}
    nodes = {n.name: given(n) if n.name in gone else n for n in graph}
    outputs = {k: x for k, x in graph.outputs.items() if (k, "output") not in consumers}
    updates = {k: x for k, x in graph.updates.items() if (k, "update") not in consumers}
    return replace(graph, nodes=nodes, outputs=outputs, updates=updates)


def given(node: Node) -> Node:
    op = op_named("input")(source_name=f"given {node.name}")  # type: ignore[call-arg]
    return replace(node, op=op, operands=(), needs=(), because=None)


def same(node: Node, graph: Graph, other: Node, before: Graph) -> bool:
    """Whether two nodes of two graphs do the same to the same values, for the same reason."""
    if node.op != other.op or node.type != other.type or node.because is None or not other.because:
        return False
    key = (node.because.by, node.because.rule)
    alike = key == (other.because.by, other.because.rule) and node.name == other.name
    return alike and values_behind(graph, node.name) == values_behind(before, other.name)


@sampled
def test_without_its_consumers_an_inserted_node_is_gone(example: str, strategy: str) -> None:
    check_causes(example, strategy)


@pytest.mark.slow
@generated
def test_it_is_in_every_example(example: str, strategy: str) -> None:
    check_causes(example, strategy)


def conversions(step: CompiledStep) -> Iterator[Node]:
    """The conversions that nodes, and no results of the step, ask for."""
    for node in step.graph:
        b = node.because
        asked = b and b.by == "partition" and node.op.conversion and b.have is not None
        if asked and not any(c.end for c in consumers_of(step.graph, node.name)):
            yield node


@pytest.mark.ci
@pytest.mark.parametrize("strategy", ["mirrored(4) * accumulate(2)", "zero(2, 2)"])
def test_where_consumers_take_what_there_is_nothing_is_converted(strategy: str) -> None:
    step = step_of("digits", strategy)
    placed = step.placed
    assert placed is not None
    steps: list[Pass] = [Partition(), Dce()]
    found = list(conversions(step))
    assert found
    for node in found:
        (value,) = values_behind(step.graph, node.name)[:1] or [node.operands[0]]
        nodes = dict(placed.nodes)
        for n in placed:
            if value in n.operands:
                needs = n.needs or tuple(placed[x].type.placement for x in n.operands)
                pairs = zip(n.operands, needs, strict=True)
                as_it_is = (placed[x].type.placement if x == value else p for x, p in pairs)
                nodes[n.name] = replace(n, needs=tuple(as_it_is))
        after = replace(placed, nodes=nodes)
        for p in steps:
            after = p.run(after)
        assert node.name not in after.nodes, node.because


# -- what it says ----------------------------------------------------------------------------------


def test_a_conversion_names_pass_rule_consumer_line_placements_bytes_and_alternatives() -> None:
    step = step_of("digits", "zero(4, 3)")
    told = in_json(step, "w1.data")
    assert (told["pass"], told["because"]["rule"]) == ("partition", "data: S(1) -> R")
    assert told["consumer"]["name"] == "einsum" and told["consumer"]["operand"] == 1
    assert told["consumer"]["line"]["line"] == 2 and told["line"]["line"] == 5
    assert told["because"]["have"] == {"data": "S(1)"} and told["because"]["need"] == {}
    assert told["bytes"] == 64 * 128 * 4 * 3 / 4 and told["axes"] == ["data"]
    chosen, *others = told["alternatives"]
    assert chosen["chosen"] and chosen["bytes"] == told["bytes"]
    assert all(a["bytes"] > chosen["bytes"] and a["refused"] for a in others)


def test_what_many_nodes_share_is_not_counted_again() -> None:
    step = step_of("digits", "zero(4, 3)")
    first = explain(step, "w2.data").choices[0]
    assert first.chosen and "shared" in first.how and first.bytes == 0


def test_a_node_of_the_source_says_what_it_computes_and_why_it_lies_so() -> None:
    step = step_of("digits", "mirrored(4) * accumulate(2)")
    e = explain(step, "logits")
    assert e.made_by == "source" and str(e.role) == "computes loss, accuracy"
    assert {(p.axis, p.state, p.root) for p in e.placement} == {
        ("data", "S(0)", "input x"), ("turn", "S(0)", "input x"),
    }  # fmt: skip
    (x,) = {p.reason for p in explain(step, "x").placement if p.axis == "data"}
    assert x == "mirrored(4) splits the batch"


def test_gradients_and_updates_say_of_what_and_by_which_optimizer() -> None:
    step = step_of("digits", "mirrored(4)")
    assert str(explain(step, "gradient.3").role).startswith("the gradient of w1")
    update = step.graph.updates["w1"]
    assert str(explain(step, update).role).startswith("the update of w1 by adam(")


def test_orders_of_turns_are_alternatives_that_cost_memory() -> None:
    step = step_of("linear", "mirrored(2) * accumulate(4)")
    (total,) = [n for n in step.graph if n.op.name == "accumulate" and n.type.shape == (10,)]
    kept = {c.how.split(":")[0]: c.memory for c in explain(step, total.name).choices}
    assert kept == {"order accumulate": 40, "order add_n": 160, "order tree": 120}


def test_what_servers_receive_and_replicas_average_answers_too() -> None:
    server = step_of("linear", "parameter_server(2, 1, staleness=2)", "server.0")
    assert "sent by the worker" in in_words(explain(server, "gradient"))
    sync = step_of("linear", "local_sgd(2, every=4)", "sync")
    assert "G" not in table(sync, sync.inserted()) and len(sync.exchanges) == 1


# -- what the alternatives cost --------------------------------------------------------------------


def check_prices(example: str, strategy: str) -> int:
    """No allowed alternative is cheaper than what was chosen. Returns how many there are."""
    step, allowed = step_of(example, strategy), 0
    assert step.placed is not None
    for node in step.placed:
        by_axis: dict[str, list[float]] = {}
        for c in explain(step, node.name).choices if node.name in step.graph.nodes else ():
            if not c.refused and node.because is None:
                by_axis.setdefault(c.axis, []).append(c.bytes + LATENCY * c.collectives)
        for chosen, *others in by_axis.values():
            assert all(cost >= chosen - 1e-6 for cost in others), f"%{node.name}"
            allowed += len(others)
    return allowed


@pytest.mark.ci
@pytest.mark.parametrize("strategy", ["mirrored(4) * accumulate(2)", "central_storage(2)"])
def test_no_allowed_alternative_is_cheaper(strategy: str) -> None:
    assert check_prices("digits", strategy)


@pytest.mark.slow
@pytest.mark.parametrize("example", [f.stem for f in EXAMPLES.glob("*.gc")])
@pytest.mark.parametrize(
    "strategy", [s for s in STRATEGIES if "split" not in s and "(2, 2)" not in s]
)
def test_none_is_in_any_example(example: str, strategy: str) -> None:
    check_prices(example, strategy)


@pytest.mark.parametrize("strategy", ["zero(4, 3) * accumulate(2)", "central_storage(2) * mirrored(2)",
                                      "reproducible(8) * zero(3, 2)", "tensor_split(2)"])  # fmt: skip
def test_the_bytes_of_all_exchanges_are_those_of_the_program(strategy: str) -> None:
    step = step_of("linear", strategy)
    module = load_module(EXAMPLES / "linear.gc")
    sent = compile_module(module, parse_strategy(strategy)).training.sent_bytes
    assert round(sum(x.bytes for x in step.exchanges.values())) == sent


# -- which node is meant ---------------------------------------------------------------------------


def test_nodes_are_found_by_name_line_op_result_and_pattern() -> None:
    graph = step_of("digits", "mirrored(4)").graph
    assert find_nodes(graph, "%h") == find_nodes(graph, "h") == ["h"]
    assert find_nodes(graph, "loss") == ["loss"]
    assert find_nodes(graph, "accuracy") == [graph.outputs["accuracy"]]
    assert len(find_nodes(graph, "all_reduce")) == 6
    assert find_nodes(graph, "%einsum.?") == [f"einsum.{i}" for i in (1, 2, 3, 5)]
    on_line = find_nodes(graph, "digits.gc:10")
    assert "h" in on_line and on_line == find_nodes(graph, ":10")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("%einsm", "there is no node or op 'einsm'"), ("all_redcue", "did you mean"),
        ("digits.gc:1", "near it: lines 2"), ("other.gc:10", "no node comes from a file 'other.gc'"),
        ("%nothing*", "there is no node"), ("", "there is no node"), ("[", "there is no node"),
    ],
)  # fmt: skip
def test_a_wrong_name_is_told_what_is_near(text: str, message: str) -> None:
    with pytest.raises(GraphcError, match="G0993") as caught:
        find_nodes(step_of("digits", "mirrored(4)").graph, text)
    assert message in str(caught.value)
