"""Every inserted node says why it is there, and for whom; what it names is there."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphc.analysis.inserted import consumers_of
from graphc.compiler.driver import stages
from graphc.frontend.language.load import load_module
from graphc.ir.graph import Graph
from graphc.strategies import parse_strategy
from graphc.text import parse_ir, print_ir

EXAMPLES = Path(__file__).parents[2] / "examples"
SAMPLE = [
    ("linear", "multi_worker_mirrored(2, 2)"), ("linear", "zero(4, 3) * accumulate(2)"),
    ("linear", "central_storage(2)"), ("linear", "local_sgd(2, every=4)"),
]  # fmt: skip
STRATEGIES = [
    "one_device()", "mirrored(3)", "mirrored(4) * accumulate(2)", "zero(2, 2)",
    "zero(4, 3) * accumulate(2)", "tensor_split(2)", "mirrored(2) * tensor_split(2)",
    "central_storage(2)", "reproducible(8) * mirrored(2) * accumulate(2)",
    "local_sgd(2, every=4)", "multi_worker_mirrored(2, 2)", "parameter_server(2, 2)",
]  # fmt: skip
ALL = [(f.stem, s) for f in sorted(EXAMPLES.glob("*.gc")) for s in STRATEGIES]


def compiled(example: str, strategy: str) -> tuple[Graph, Graph]:
    """The graph before any strategy is known, and the compiled one."""
    module = load_module(EXAMPLES / f"{example}.gc")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graphs = list(stages(module, parse_strategy(strategy), "train"))
    known = [g for name, g in graphs if name in ("source", "differentiate", "assemble")]
    return known[-1], graphs[-1][1]


def check(example: str, strategy: str) -> None:
    before, graph = compiled(example, strategy)
    for node in graph:
        if node.because is None:
            assert node.name in before.nodes, f"%{node.name} says nothing of itself"
        else:
            assert consumers_of(graph, node.name), f"nobody needs %{node.name}"
            named = [(c.name, c.end) for c in consumers_of(graph, node.name)]
            named += [(x, "") for x in inserted_users(graph, node.name)]
            target = node.because.consumer, node.because.end
            assert target in [("", ""), *named], f"%{node.name}: {node.because}"
    assert parse_ir(print_ir(graph, locs=True)) == graph


def inserted_users(graph: Graph, name: str) -> Iterator[str]:
    """The inserted nodes that a value leads to."""
    stack = [name]
    while stack:
        for user in graph.users[stack.pop()]:
            if graph[user].because is not None:
                yield user
                stack.append(user)


@pytest.mark.parametrize(("example", "strategy"), SAMPLE)
def test_inserted_nodes_name_a_consumer_that_is_there(example: str, strategy: str) -> None:
    check(example, strategy)


@pytest.mark.slow
@pytest.mark.parametrize(("example", "strategy"), ALL)
def test_they_do_in_all_examples_under_all_strategies(example: str, strategy: str) -> None:
    check(example, strategy)


def test_a_conversion_says_which_operand_needs_it_and_from_what_to_what() -> None:
    _, graph = compiled("linear", "mirrored(4)")
    (total,) = [n for n in graph if n.op.name == "all_reduce" and n.scope.startswith("grad")]
    why = total.because
    assert why is not None and graph[why.consumer].operands[why.operand] == total.name
    assert (str(why.have), str(why.need)) == ("{data:P}", "{}")


def test_what_results_of_the_step_need_is_named_by_their_kind() -> None:
    _, graph = compiled("linear", "zero(2, 1)")
    ends = {(b.end, b.consumer) for n in graph if (b := n.because) and b.end}
    assert ("update", "w") in ends
