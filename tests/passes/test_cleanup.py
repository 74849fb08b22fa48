"""The optional passes, as graphs before and after."""

from __future__ import annotations

import pytest

from graphc.ir.builder import Builder, Value
from graphc.ir.graph import Graph, Objective, Variable
from graphc.ir.op import op_named
from graphc.ir.types import F32, TensorType
from graphc.optim import sgd
from graphc.passes.cleanup import Cse, Dce, FoldConstants, Simplify
from graphc.testing.models import entry
from graphc.verify import verify


def source(f: Builder, name: str, *shape: int) -> Value:
    op = op_named("input")(source_name=name)  # type: ignore[call-arg]
    return f.add(op, type=TensorType(shape, F32), name=name)


def built(f: Builder, **outputs: Value) -> Graph:
    f.outputs.update({k: v.name for k, v in outputs.items()})
    return f.build()


def test_dce_drops_what_nothing_needs_and_keeps_inputs() -> None:
    f = Builder()
    x, unused = source(f, "x", 2), source(f, "unused", 2)
    f.exp(unused)
    graph = Dce().run(built(f, y=-x))
    assert list(graph.nodes) == ["x", "unused", "neg"]


def test_dce_keeps_updates() -> None:
    f = Builder()
    x = source(f, "x", 2)
    f.updates["w"] = f.exp(x).name
    assert "exp" in Dce().run(f.build()).nodes


def test_cse_computes_equal_nodes_once() -> None:
    f = Builder()
    x = source(f, "x", 2)
    graph = Cse().run(built(f, y=f.exp(x) + f.exp(x)))
    assert graph["add"].operands == ("exp", "exp")
    assert "exp.1" not in graph.nodes


def test_cse_keeps_draws_with_different_keys_apart() -> None:
    f = Builder()
    step = f.step_count()
    a = f.random(step, shape=(2,), key="a")
    b = f.random(step, shape=(2,), key="b")
    total = a + b
    graph = Cse().run(built(f, y=total))
    assert graph[total.name].operands == ("random", "random.1")


def test_cse_tells_zero_from_minus_zero() -> None:
    f = Builder()
    graph = Cse().run(built(f, y=f.constant(0.0), z=f.constant(-0.0)))
    assert graph.outputs["y"] != graph.outputs["z"]


def test_cse_takes_nan_for_nan() -> None:
    f = Builder()
    nan = float("nan")
    graph = Cse().run(built(f, y=f.constant(nan), z=f.constant(nan)))
    assert graph.outputs["y"] == graph.outputs["z"]


@pytest.mark.parametrize("number, op", [(0.0, "add"), (0.0, "sub"), (1.0, "mul"), (1.0, "div")])
def test_simplify_drops_an_identity(number: float, op: str) -> None:
    f = Builder()
    x = source(f, "x", 3)
    graph = Simplify().run(built(f, y=f.binary(op, x, number)))
    assert graph.outputs["y"] == "x"


def test_simplify_does_not_drop_zero_minus_x() -> None:
    f = Builder()
    x = source(f, "x", 3)
    graph = Simplify().run(built(f, y=f.binary("sub", 0.0, x)))
    assert graph.outputs["y"] == "sub"


def test_simplify_undoes_a_double_transpose_and_negation() -> None:
    f = Builder()
    x = source(f, "x", 2, 3)
    twice = f.add(op_named("transpose")(perm=(1, 0)), (x,))  # type: ignore[call-arg]
    twice = f.add(op_named("transpose")(perm=(1, 0)), (twice,))  # type: ignore[call-arg]
    negated = -x
    graph = Simplify().run(built(f, y=twice, z=-negated))
    assert graph.outputs == {"y": "x", "z": "x"}


def test_simplify_keeps_a_transpose_between_equal_dims() -> None:
    f = Builder()
    x = source(f, "x", 3, 3)
    y = f.add(op_named("transpose")(perm=(1, 0)), (x,))  # type: ignore[call-arg]
    assert Simplify().run(built(f, y=y)).outputs["y"] == y.name


def test_fold_constants_computes_scalars() -> None:
    f = Builder()
    y = f.constant(2.0) * f.constant(3.0)
    graph = FoldConstants().run(built(f, y=y))
    assert graph[y.name].op == op_named("const")(value=6.0, dtype=F32)  # type: ignore[call-arg]


def test_fold_constants_leaves_a_run_time_count_alone() -> None:
    from graphc.ir.types import Extent

    f = Builder()
    y = f.dim_size(size=8, extent=Extent("batch")) * f.constant(2.0)
    graph = FoldConstants().run(built(f, y=y))
    assert graph[y.name].operands


def test_two_reshapes_that_forget_the_batch_together_are_not_one_that_keeps_it() -> None:
    f = Builder()
    x = entry(f, "x", (1, 1))
    assert x.type.extents
    y = f.reshape(f.reshape(x, shape=()), shape=(1, 1, 1))
    z = f.reshape(f.reshape(x, shape=(1, 1, 1, 1)), shape=(1, 1, 1))
    before = built(f, y=y, z=z)
    graph = Simplify().run(before)
    assert graph[graph.outputs["y"]].type == y.type and not y.type.extents
    assert graph[graph.outputs["z"]].operands == ("x",)
    verify(graph)


def test_simplify_drops_stop_gradient_once_gradients_are_taken() -> None:
    f = Builder()
    x = source(f, "x", 2)
    graph = built(f, y=f.exp(f.stop_gradient(x)))
    assert list(Simplify().run(graph).nodes) == ["x", "exp"]


def test_simplify_keeps_stop_gradient_before() -> None:
    f = Builder()
    w = f.declare(Variable("w", TensorType((), F32)))
    loss = f.stop_gradient(w) * w
    f.objectives.append(Objective(loss.name, sgd(0.1), ("w",)))
    assert "stop_gradient" in Simplify().run(f.build()).nodes
