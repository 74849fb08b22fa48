"""What one step has that another hasn't: names don't matter, everything else does."""

from __future__ import annotations

import json
import time
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from graphc.compiler.driver import compile_module
from graphc.frontend.language.load import load_module
from graphc.inspect.difference.differences import Difference, difference
from graphc.inspect.difference.in_words import in_json, in_words
from graphc.inspect.difference.matching import match_nodes
from graphc.inspect.difference.sides import ComparedStep, of_graph, of_module, of_plan
from graphc.inspect.explain.compiled import compiled_step
from graphc.ir.builder import Builder, Value
from graphc.ir.graph import Graph
from graphc.ir.types import F32, TensorType
from graphc.ops.source import Input
from graphc.plan.plan import parse
from graphc.runtime.backends import plugins
from graphc.strategies import parse_strategy
from graphc.text import parse_ir, print_ir

EXAMPLES = Path(__file__).parents[2] / "examples"
BACKEND = plugins.backend("numpy")
STRATEGIES = ["one_device()", "mirrored(3)", "zero(4, 3) * accumulate(2)", "tensor_split(2)",
              "local_sgd(2, every=4)", "multi_worker_mirrored(2, 2)"]  # fmt: skip


@cache
def side(file: Path | str, strategy: str = "one_device") -> ComparedStep:
    path = EXAMPLES / f"{file}.gc" if isinstance(file, str) else file
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return of_module(str(file), load_module(path), parse_strategy(strategy), BACKEND)


def edited(folder: Path, *pairs: tuple[str, str]) -> Path:
    """The example digits with some texts replaced."""
    text = (EXAMPLES / "digits.gc").read_text()
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    path = folder / "edited.gc"  # a folder for each test
    path.write_text(text)
    return path


def given(f: Builder, name: str) -> Value:
    return f.add(Input(name), type=TensorType((4,), F32), name=name)


def changed(d: Difference) -> list[tuple[str, str]]:
    return [(c.sign, c.node.op.name) for c in d.nodes]


def renamed(graph: Graph) -> Graph:
    """The graph with other names for all nodes."""
    to = {x: f"z{i}" for i, x in enumerate(reversed(graph.nodes))}
    nodes = {
        to[n.name]: replace(n, name=to[n.name], operands=tuple(to[x] for x in n.operands))
        for n in graph
    }
    return replace(
        graph, nodes=nodes, outputs={k: to[x] for k, x in graph.outputs.items()},
        updates={k: to[x] for k, x in graph.updates.items()},
    )  # fmt: skip


# -- equal -----------------------------------------------------------------------------------------


@pytest.mark.ci
@pytest.mark.parametrize("strategy", ["zero(4, 3) * accumulate(2)"])
def test_a_step_equals_itself_and_what_it_is_with_other_names(strategy: str) -> None:
    graph = compiled_step(load_module(EXAMPLES / "digits.gc"), parse_strategy(strategy)).graph
    other = renamed(graph)
    found = difference(of_graph("a", graph), of_graph("b", other))
    assert found.equal and "are the same" in in_words(found), in_words(found)
    assert len(match_nodes(graph, other)) > 100
    again = parse_ir(print_ir(graph))  # without the lines of the source
    assert difference(of_graph("a", graph), of_graph("b", again)).equal


@pytest.mark.ci
@pytest.mark.parametrize("strategy", ["multi_worker_mirrored(2, 2)", "local_sgd(2, every=4)"])
def test_collectives_of_buckets_and_of_replicas_are_matched(strategy: str) -> None:
    side.cache_clear()
    one = side("linear", strategy)
    side.cache_clear()
    assert difference(one, side("linear", strategy)).equal


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("example", [f.stem for f in EXAMPLES.glob("*.gc")])
def test_every_example_equals_itself(example: str, strategy: str) -> None:
    assert difference(side(example, strategy), side(example, strategy)).equal


@pytest.mark.ci
def test_other_words_in_the_source_are_no_difference(tmp_path: Path) -> None:
    path = edited(
        tmp_path, ("logits", "z"), ("h      =", "first =  "), ("dense(h,", "dense(first,")
    )
    assert difference(side("digits"), side(path)).equal


# -- different -------------------------------------------------------------------------------------


def test_a_number_is_one_changed_constant(tmp_path: Path) -> None:
    found = difference(side("digits"), side(edited(tmp_path, ("lr=1e-3", "lr=2e-3"))))
    assert changed(found) == [("~", "const")] and not found.equal
    text = in_words(found)
    assert "edited.gc:14  minimize loss with adam(lr=2e-3)" in text
    assert "{value=0.001}" in text and "{value=0.002}" in text


def test_another_activation_leaves_all_else_as_it_is(tmp_path: Path) -> None:
    found = difference(side("digits"), side(edited(tmp_path, ("relu(", "gelu("))))
    gone = {c.node.op.name for c in found.nodes if c.sign == "-"}
    new = {c.node.scope for c in found.nodes if c.sign == "+"}
    assert gone == {"broadcast", "maximum", "gt", "select"}
    assert {"gelu", "grad/gelu"} <= new and not any("update" in s for s in new)
    assert not found.variables and not found.sent


@pytest.mark.ci
def test_a_layer_more_is_added_nodes_a_variable_and_its_bytes(tmp_path: Path) -> None:
    more = "h      = relu(dense(relu(dense(x, w1, b1)), w3, b1))"
    path = edited(
        tmp_path, ("h      = relu(dense(x, w1, b1))", more),
        ("param b1", "param w3: f32[128, 128] = he_normal()\n    param b1"),
    )  # fmt: skip
    found = difference(side("digits"), side(path))
    assert {c.sign for c in found.nodes} == {"+"}
    assert [p.name for p in found.variables if p.name == "w3"] == ["w3"]
    back = difference(side(path), side("digits"))
    assert {c.sign for c in back.nodes} == {"-"} and len(back.nodes) == len(found.nodes)


@pytest.mark.ci
def test_strategies_differ_in_placements_collectives_and_totals_and_not_in_the_step() -> None:
    found = difference(side("digits", "mirrored(4)"), side("digits", "zero(4, 3)"))
    assert not found.nodes
    assert {p.name: p.after for p in found.variables}["w1"] == "f32[64,128] {data:S(1)}"
    kinds = {(kind, before > 0, after > 0) for kind, _, before, after, _ in found.sent}
    assert ("all_reduce", True, False) in kinds and ("all_gather", False, True) in kinds
    for x, total in ((found.before, 2), (found.after, 3)):
        sent = sum(c[total] for c in found.collectives)
        assert round(sent) == x.totals["bytes sent by a device"]


def test_a_result_more_is_a_difference(tmp_path: Path) -> None:
    path = edited(tmp_path, ("report accuracy", "report again = loss\n    report accuracy"))
    found = difference(side("digits"), side(path))
    assert [(p.name, p.before) for p in found.results] == [("again", "")] and not found.equal


def test_operands_in_another_order_are_a_change() -> None:
    graphs = []
    for swap in (False, True):
        f = Builder("step")
        x, y = given(f, "x"), given(f, "y")
        a, b = f.exp(x), f.exp(y)
        f.outputs["z"] = (b - a if swap else a - b).name
        graphs.append(of_graph("g", f.build()))
    assert changed(difference(*graphs)) == [("~", "sub")]


def test_plans_differ_in_what_they_send_and_hold() -> None:
    module = load_module(EXAMPLES / "linear.gc")
    plans = [
        parse(compile_module(module, parse_strategy(s)).text())
        for s in ("mirrored(4)", "zero(2, 3)")
    ]
    one, other = (of_plan(str(i), p, BACKEND) for i, p in enumerate(plans))
    assert difference(one, one).equal
    found = difference(one, other)
    assert found.sent and found.variables and not found.nodes
    assert ("devices", 4, 2) in [(p.name, p.before, p.after) for p in found.totals]


def test_a_difference_is_plain_values_in_json(tmp_path: Path) -> None:
    found = difference(side("digits"), side(edited(tmp_path, ("lr=1e-3", "lr=2e-3"))))
    told = json.loads(json.dumps(in_json(found)))
    (change,) = told["nodes"]
    assert change["change"] == "changed" and change["before"]["attributes"] == "value=0.001"
    assert change["after"]["line"]["line"] == 14 and told["equal"] is False


@pytest.mark.ci
def test_ten_thousand_nodes_are_matched_in_seconds() -> None:
    def chain(extra: int) -> Graph:
        f = Builder("step")
        x = given(f, "x")
        for i in range(5_000):
            x = f.exp(x) * (2.0 if i == extra else 1.5)
        f.outputs["y"] = x.name
        return f.build()

    start = time.perf_counter()
    a, b = chain(-1), chain(2_500)
    to = match_nodes(a, b)
    assert len(to) >= len(a) - 2 and time.perf_counter() - start < 20
