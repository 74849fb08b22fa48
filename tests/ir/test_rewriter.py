"""The rewriter keeps what a reader follows: names, places in the source, and why a node is there."""

from __future__ import annotations

from graphc.ir.graph import Because, Graph
from graphc.ir.op import op_named
from graphc.ir.rewriter import Names, Rewriter
from graphc.text import parse_ir, print_ir

STEP = """graphc-ir 1
graph step {
  %x : f32[4] = input {source_name="x"}
  %a : f32[4] = exp %x
  %b : f32[4] = exp %x
  %c : f32[4] = add %a, %b
  output y = %b
  output z = %c
}
"""
WHY = Because("test", "a rule")


def step() -> Graph:
    return parse_ir(STEP)


def copied(graph: Graph) -> Rewriter:
    work = Rewriter(graph)
    for node in map(work.moved, graph):
        work.put(node)
    return work


def test_what_is_put_in_as_it_was_is_the_same_graph() -> None:
    assert copied(step()).finish() == step()


def test_a_value_is_led_to_the_one_that_stands_for_it() -> None:
    graph, work = step(), Rewriter(step())
    for node in map(work.moved, graph):
        if node.name == "b":
            work.stand_in("b", "a")
        else:
            work.put(node)
    after = work.finish()
    assert after["c"].operands == ("a", "a")
    assert after.outputs == {"y": "a", "z": "c"}
    assert "b" not in after.nodes


def test_a_new_node_has_the_source_of_the_one_that_it_is_made_for_and_a_reason() -> None:
    graph = step()
    work = copied(graph)
    name = work.insert(op_named("neg")(), ("c",), graph["c"], WHY)
    made = work.nodes[name]
    assert name == "c.1"
    assert (made.origin, made.scope, made.type) == (graph["c"].origin, "", graph["c"].type)
    assert made.because == WHY
    assert "because test" in print_ir(work.finish(outputs={"y": name}))


def test_no_new_name_is_one_that_the_graph_before_has_further_down() -> None:
    graph = step()
    work = Rewriter(graph)
    assert [work.unique("c"), work.unique("c"), work.unique("new"), work.unique("new")] == [
        "c.1", "c.2", "new", "new.1",
    ]  # fmt: skip


def test_a_name_that_is_free_is_given_as_it_is() -> None:
    names = Names()
    assert names.unique("a", {"a", "a.1"}, {"a.2"}) == "a.3"
    assert names.unique("a", set()) == "a"
    assert names.unique("a", {"a"}) == "a.4"
