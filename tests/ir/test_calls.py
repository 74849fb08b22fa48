"""Each call of a function or a composite is a scope of its own."""

from __future__ import annotations

import pytest

from graphc.ir.builder import Builder, Value
from graphc.ir.graph import Graph
from graphc.ir.op import all_ops
from graphc.ir.types import F32, TensorType, parse_types
from graphc.ops.source import Input


def builder() -> tuple[Builder, Value]:
    f = Builder()
    return f, f.add(Input("x"), type=TensorType((4, 4), F32), name="x")


def scopes(f: Builder) -> list[str]:
    return list(dict.fromkeys(node.scope for node in f.nodes.values() if node.scope))


def test_each_call_of_a_function_has_a_scope_of_its_own() -> None:
    f, x = builder()
    for _ in range(3):
        with f.calls.function("block"):
            x = f.exp(x)
            with f.calls.function("inner"):
                x = f.tanh(x)
    assert scopes(f) == [
        "block", "block/inner", "block.1", "block.1/inner", "block.2", "block.2/inner",
    ]  # fmt: skip


def test_calls_of_one_function_share_the_names_of_random_numbers() -> None:
    f, _ = builder()
    keys = []
    for _ in range(2):
        with f.calls.function("block"):
            keys.append(f.key("dropout"))
    assert keys == ["block/dropout", "block/dropout.1"]


def test_only_the_outermost_composite_of_several_nodes_is_a_scope() -> None:
    f, x = builder()
    f.cross_entropy(x, f.argmax(x, axis=1))  # which calls other composites
    f.softmax(x)
    f.softmax(x)
    f.matmul(x, x)  # one node: it says itself what it is
    assert scopes(f) == ["cross_entropy", "softmax", "softmax.1"]
    assert list(f.nodes.values())[-1].scope == ""


def test_what_passes_and_gradient_rules_call_is_no_scope() -> None:
    f, x = builder()
    with f.scope("grad"):
        f.softmax(x)
    assert scopes(f) == ["grad"]
    later = Builder.like(Graph())
    y = later.add(Input("x"), type=x.type, name="x")
    later.softmax(y)
    assert scopes(later) == []


def test_a_call_that_fails_leaves_the_scope() -> None:
    f, x = builder()
    with pytest.raises(ZeroDivisionError), f.calls.function("block"):
        raise ZeroDivisionError
    with pytest.raises(Exception, match="axis|dim"):
        f.softmax(x, axis=7)
    f.softmax(x)
    assert scopes(f) == ["softmax"]


@pytest.mark.parametrize("name", [n for n, op in all_ops().items() if op.same_entries])
def test_an_op_of_the_same_entries_has_one_operand(name: str) -> None:
    for op, types in all_ops()[name].samples():
        assert len(parse_types(types)) == 1, op
