"""What a function adds for operands that are alike is added again, without running it again."""

from __future__ import annotations

from collections.abc import Callable

import graphc.ops  # noqa: F401 - registers the ops
from graphc.ir.builder import Builder, Value
from graphc.ir.graph import Graph
from graphc.ir.op import op_named
from graphc.ir.repeat import Repeater
from graphc.ir.types import F32, F64, I64, TensorType

ROW, ROWS, WIDE = TensorType((4,), F32), TensorType((2, 4), F32), TensorType((4,), F64)
Function = Callable[[Builder, Value, Value], Value]


def graph_of(function: Function, pairs: list[tuple[int, int]], types: dict[int, TensorType]) -> int:
    """How often a function runs for these pairs of inputs. The graph is what that many calls make."""
    calls: list[int] = []

    def built(repeats: bool) -> Graph:
        f = Builder()
        xs = {k: _input(f, f"x{k}", t) for k, t in types.items()}
        _input(f, "other", ROW)
        alike = Repeater(f)
        for i, j in pairs:

            def make(x: Value = xs[i], y: Value = xs[j]) -> dict[str, Value | None]:
                calls.append(1)
                return {"z": function(f, x, y), "none": None}

            with f.scope(f"of{i}"):
                made = alike.run("function", (xs[i], xs[j]), make) if repeats else make()
            assert made["none"] is None and made["z"] is not None
            f.outputs[f"z{i}{j}"] = made["z"].name
        return f.build()

    repeated = built(repeats=True)
    count = len(calls)
    assert repeated == built(repeats=False)
    return count


def _input(f: Builder, name: str, t: TensorType) -> Value:
    return f.add(op_named("input")(source_name=name), type=t, name=name)  # type: ignore[call-arg]


def times(function: Function, *types: TensorType) -> int:
    """How often it runs for pairs of inputs, both of these types."""
    pairs = [(2 * k, 2 * k + 1) for k in range(len(types))]
    inputs = {i: t for pair, t in zip(pairs, types, strict=True) for i in pair}
    return graph_of(function, pairs, inputs)


def scaled(f: Builder, x: Value, y: Value) -> Value:
    with f.scope("inner"):
        return f.mean(x * y + 2.0, axis=0) * f.const(value=-0.0, dtype=x.dtype)


def test_a_function_runs_once_for_operands_of_the_same_types() -> None:
    assert times(scaled, ROW, ROW, ROW) == 1
    assert times(scaled, ROW, ROWS, ROW, ROWS) == 2
    assert times(scaled, ROW, WIDE) == 2


def test_one_operand_twice_is_not_two() -> None:
    pairs = [(0, 1), (0, 0), (1, 2), (2, 2)]
    assert graph_of(scaled, pairs, {0: ROW, 1: ROW, 2: ROW}) == 2


def test_a_function_may_read_other_values_and_return_its_operand() -> None:
    assert times(lambda f, x, y: x + Value(f, "other"), ROW, ROW) == 1
    assert times(lambda f, x, y: y, ROW, ROW) == 1


def test_random_numbers_are_drawn_for_each() -> None:
    def function(f: Builder, x: Value, y: Value) -> Value:
        step = f.const(value=0, dtype=I64)
        return x * f.random(step, shape=(4,), key=f.key("noise")) + y

    assert times(function, ROW, ROW, ROW) == 3


def test_a_function_that_declares_a_variable_runs_each_time() -> None:
    def function(f: Builder, x: Value, y: Value) -> Value:
        return x * f.to_dtype(f.step_count(), F32) + y

    assert times(function, ROW, ROW, ROW) == 3
