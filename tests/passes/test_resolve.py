"""What replicas write becomes one value, or an error that names the writers and the words."""

from __future__ import annotations

import re

import pytest

from graphc.ir.aggregation import DIFFER
from graphc.ir.builder import Builder, Value
from graphc.ir.graph import Graph, Objective, Variable
from graphc.ir.op import op_named
from graphc.ir.types import F32, Extent, TensorType
from graphc.ops.optimizers.update_rules import Sgd
from graphc.passes.differentiation.resolve import Resolve
from graphc.support.errors import GraphcError, Span

SCALAR = TensorType((), F32)
HERE = Span("step.gc", 3, 5, 7)


def step(aggregation: str = "none", on: str = "write") -> tuple[Builder, Value, Value]:
    """A builder, a state `n`, and a varying scalar."""
    f = Builder()
    t = TensorType((8,), F32, (Extent("batch"),))
    x = f.add(op_named("input")(source_name="x"), type=t, name="x")  # type: ignore[call-arg]
    n = f.declare(Variable("n", SCALAR, "state", aggregation=aggregation, on=on))
    with f.at(HERE):
        own = f.per_replica(x)
    return f, n, f.sum(own)


def ops_above(graph: Graph, name: str) -> set[str]:
    found, stack = set[str](), [name]
    while stack:
        node = graph[stack.pop()]
        found.add(node.op.name)
        stack += node.operands
    return found


def test_a_conflicting_write_names_the_writers_and_the_words() -> None:
    f, _, own = step()
    f.updates["n"] = own.name
    with pytest.raises(GraphcError, match="each replica writes its own value to 'n'") as caught:
        Resolve().run(f.build())
    assert caught.value.code == "G0481"
    assert any(span == HERE for span, _ in caught.value.labels)
    assert "replica_mean(v)" in str(caught.value.help) and "aggregate=" in str(caught.value.help)


def test_a_varying_output_and_a_varying_loss_are_errors() -> None:
    f, _, own = step()
    f.outputs["seen"] = own.name
    with pytest.raises(GraphcError, match=re.escape("output 'seen' is one value")) as caught:
        Resolve().run(f.build())
    assert caught.value.code == "G0482"
    f.outputs.clear()
    f.objectives.append(Objective(own.name, Sgd(0.1), ()))
    with pytest.raises(GraphcError, match="the loss is one value") as caught:
        Resolve().run(f.build())
    assert caught.value.code == "G0305"


def test_the_batch_of_a_varying_output_can_be_put_together() -> None:
    f, _, _ = step()
    f.outputs["seen"] = "per_replica"
    with pytest.raises(GraphcError) as caught:
        Resolve().run(f.build())
    assert "join_replicas(v)" in str(caught.value.help)


def test_sum_adds_up_what_the_replicas_add() -> None:
    f, n, own = step("sum")
    f.updates["n"] = (n + own).name
    after = Resolve().run(f.build())
    total = after[after.updates["n"]]
    assert total.op.name == "add" and total.operands[0] == "n"
    assert after[total.operands[1]].op.name == "replica_sum"
    assert total.because is not None and total.because.by == "resolve"


def test_sum_of_a_value_without_the_variable_is_the_replicas_sum() -> None:
    f, _, own = step("sum")
    f.updates["n"] = own.name
    after = Resolve().run(f.build())
    assert after[after.updates["n"]].op.name == "replica_sum"


def test_sum_of_a_value_that_holds_the_variable_otherwise_is_an_error() -> None:
    f, n, own = step("sum")
    f.updates["n"] = (n * 0.9 + own).name
    with pytest.raises(GraphcError, match="counts it once per replica") as caught:
        Resolve().run(f.build())
    assert caught.value.code == "G0488" and "n <- n + d" in str(caught.value.help)


def test_mean_and_first_replica_take_the_whole_new_value() -> None:
    for aggregation, op in (("mean", "replica_count"), ("only_first_replica", "replica_index")):
        f, n, own = step(aggregation)
        f.updates["n"] = (n * 0.9 + own).name
        after = Resolve().run(f.build())
        assert op in ops_above(after, after.updates["n"])


def test_the_check_counts_the_replicas_that_differ() -> None:
    f, _, own = step("only_first_replica")
    f.updates["n"] = own.name
    assert not Resolve().run(f.build()).outputs
    assert list(Resolve(check=True).run(f.build()).outputs) == [f"{DIFFER}n"]


def test_a_global_write_needs_no_aggregation() -> None:
    f, n, own = step()
    f.updates["n"] = (n + f.replica_sum(own)).name
    assert Resolve().run(f.build()).updates["n"] == f.updates["n"]


# -- copies ------------------------------------------------------------------------------------------


def test_beside_varying_values_a_copy_is_the_replicas_own() -> None:
    f, n, own = step("sum", "read")
    f.updates["n"] = (n + own).name
    after = Resolve().run(f.build())
    assert ops_above(after, after.updates["n"]) & {"replica_sum"} == set()


def test_global_code_reads_what_the_copies_come_to() -> None:
    f, n, _ = step("sum", "read")
    f.outputs["n"] = n.name
    f.outputs["twice"] = (n * 2.0).name
    after = Resolve().run(f.build())
    for x in after.outputs.values():
        assert "replica_sum" in ops_above(after, x)


def test_a_global_value_written_to_copies_is_on_the_first_replica_where_they_are_summed() -> None:
    for aggregation, op in (("sum", True), ("mean", False)):
        f, n, _ = step(aggregation, "read")
        f.updates["n"] = (n * 2.0).name
        after = Resolve().run(f.build())
        assert (after[after.updates["n"]].op.name == "select") is op


def test_global_code_can_not_read_what_each_replica_keeps() -> None:
    _, n, _ = step("none", "never")
    with pytest.raises(GraphcError, match="each replica has its own 'n'") as caught:
        n * 2.0
    assert caught.value.code == "G0489"
