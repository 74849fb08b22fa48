"""Files for other programs have every value and edge, and what is known of them."""

from __future__ import annotations

import io
import json
from typing import Any

import networkx
import pytest

from graphc.inspect.pictures import to_graphml, to_model_explorer
from graphc.inspect.scene import clean
from graphc.ir.graph import Graph
from graphc.text import parse_ir


def graphml(graph: Graph) -> Any:
    """The file as networkx reads it."""
    return networkx.read_graphml(io.BytesIO(to_graphml(graph).encode()), force_multigraph=True)


def ends(graph: Graph) -> int:
    return len(graph.outputs) + len(graph.updates) + len(graph.objectives)


@pytest.mark.parametrize("which", ["step", "nasty", "deep"])
def test_graphml_reads_back_with_every_value_and_edge(
    which: str, request: pytest.FixtureRequest
) -> None:
    graph: Graph = request.getfixturevalue(which)
    read = graphml(graph)
    assert read.number_of_nodes() == len(graph) + ends(graph)
    assert read.number_of_edges() == sum(len(n.operands) for n in graph) + ends(graph)
    assert read.graph["name"] == clean(graph.name)
    assert networkx.is_directed_acyclic_graph(read)


def test_a_node_of_graphml_has_the_facts_of_its_value(step: Graph) -> None:
    read = graphml(step)
    assert read.nodes["einsum"] == {
        "label": "einsum", "scope": "layer0", "op": "einsum", "attributes": 'spec="bk,kn->bn"',
        "type": "f32[batch=8,4]", "origin": "stack.gc:1:5", "bytes": 128, "multiply_adds": 128,
    }  # fmt: skip
    assert read.nodes["all_reduce"]["because"] == str(step["all_reduce"].because)
    assert read.nodes["accumulate"]["placement"] == "{data:P}"
    assert read.nodes["update w0"]["op"] == "update"
    assert [e["slot"] for e in read.get_edge_data("x", "einsum").values()] == [0]


def test_both_edges_of_a_square_are_there() -> None:
    graph = parse_ir(
        'graphc-ir 1 graph g { %x : f32[] = input {source_name="x"} %y : f32[] = mul %x, %x }'
    )
    assert [e["slot"] for e in graphml(graph).get_edge_data("x", "y").values()] == [0, 1]
    nodes = json.loads(to_model_explorer(graph))["graphs"][0]["nodes"]
    assert [e["targetNodeInputId"] for e in nodes[1]["incomingEdges"]] == ["0", "1"]


def test_names_that_differ_in_unprintable_characters_stay_apart() -> None:
    graph = parse_ir(
        r'graphc-ir 1 graph g { %"a\u0001" : f32[] = const {value=1.0}'
        r' %"a\u0002" : f32[] = neg %"a\u0001" }'
    )
    assert graphml(graph).number_of_nodes() == 2


def test_an_end_may_be_called_like_a_value() -> None:
    graph = parse_ir(
        'graphc-ir 1 graph g { %"output y" : f32[] = const {value=1.0} output y = %"output y" }'
    )
    assert set(graphml(graph)) == {"output y", "output y.1"}


@pytest.mark.parametrize("which", ["step", "nasty"])
def test_model_explorer_has_every_value_in_its_scope(
    which: str, request: pytest.FixtureRequest
) -> None:
    graph: Graph = request.getfixturevalue(which)
    (made,) = json.loads(to_model_explorer(graph))["graphs"]
    nodes = {n["id"]: n for n in made["nodes"]}
    assert len(nodes) == len(made["nodes"]) == len(graph) + ends(graph)
    for value in graph:
        node = nodes[value.name]
        assert node["namespace"] == value.scope
        assert [e["sourceNodeId"] for e in node["incomingEdges"]] == list(value.operands)
        facts = {x["key"]: x["value"] for x in node["attrs"]}
        assert facts["op"] == value.op.name and facts["bytes"] == str(value.type.bytes)
        assert all(isinstance(x, str) for x in facts.values())
