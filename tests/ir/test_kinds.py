"""Nodes that are alike share their ops and types; nodes that only compare as equal do not."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.ir import builder
from graphc.ir import kinds as module
from graphc.ir.builder import Builder
from graphc.ir.op import Op
from graphc.ir.types import F32, TensorType
from graphc.ops.source import Const
from graphc.testing.compute import inputs
from graphc.text import parse_ir, print_ir


def stack(layers: int) -> Builder:
    b = Builder()
    (x,) = inputs(b, [np.ones((4, 8), np.float32)], batch=[0])
    for _ in range(layers):
        x = b.tanh(x * x)
    b.outputs["y"] = x.name
    return b


def kinds(b: Builder) -> set[tuple[int, int]]:
    return {(id(n.op), id(n.type)) for n in b.nodes.values()}


def test_layers_that_are_alike_share_ops_and_types() -> None:
    assert len(kinds(stack(40))) == len(kinds(stack(4)))
    assert len({id(n.type) for n in stack(40).nodes.values()}) == 1


def test_a_type_is_inferred_once_a_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    inferred, inner = list[Op](), builder.infer_type

    def infer_type(op: Op, types: list[TensorType]) -> TensorType:
        inferred.append(op)
        return inner(op, types)

    monkeypatch.setattr(builder, "infer_type", infer_type)
    stack(4)
    few = len(inferred)
    inferred.clear()
    stack(40)
    assert 0 < len(inferred) == few


def test_the_graph_is_the_one_of_its_text() -> None:
    graph = stack(3).build()
    assert parse_ir(print_ir(graph, locs=True)) == graph


@pytest.mark.parametrize("pair", [(0.0, -0.0), (-0.0, 0.0)], ids=repr)
def test_constants_that_only_compare_as_equal_are_kept_apart(pair: tuple[float, float]) -> None:
    b = Builder()
    values = [b.nodes[b.constant(x).name].op.attributes["value"] for x in pair]
    assert [np.signbit(x) for x in values] == [np.signbit(x) for x in pair]


def test_zeros_that_are_taken_for_equal_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PLAIN", module.PLAIN | {float})
    with pytest.raises(AssertionError):
        test_constants_that_only_compare_as_equal_are_kept_apart((0.0, -0.0))


@pytest.mark.parametrize("pair", [(1, True), (0, False), (2, 2.0)], ids=repr)
def test_attributes_of_other_types_are_kept_apart(pair: tuple[int, float]) -> None:
    b = Builder()
    values = [b.add(Const(x, F32)).node.op.attributes["value"] for x in pair]
    assert [type(x) for x in values] == [type(x) for x in pair]
