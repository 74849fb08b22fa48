"""Runs the samples of every op, in every dtype that it accepts, on the backend and on the
reference."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from graphc.ir.builder import Builder, Value, infer_type
from graphc.ir.graph import Graph, Variable
from graphc.ir.op import all_ops, op_named
from graphc.ir.orders import Order
from graphc.ir.types import F32, TensorType
from graphc.lowering.schedule.schedule import schedule
from graphc.ops.elementwise import Aggregate
from graphc.ops.source import Input, ReadVariable
from graphc.runtime.backends.backend import Backend
from graphc.testing.running import check_agrees
from graphc.testing.samples import Case, sample_cases, typed_cases

OPS = [name for name, cls in all_ops().items() if cls.samples()]


def cases(name: str) -> Iterator[Case]:
    for case in sample_cases([op_named(name)]):
        yield from typed_cases(case)


def operands(f: Builder, case: Case) -> list[Value]:
    return [f.add(Input(f"x{i}"), type=t, name=f"x{i}") for i, t in enumerate(case.types)]


def plain(case: Case) -> Graph:
    """The op on entries of the batch."""
    f = Builder("plain")
    f.outputs["y"] = f.add(case.op, operands(f, case)).name
    return f.build()


def strided(case: Case) -> Graph:
    """The op on operands whose dims have the reverse order in memory; its result is reversed,
    too."""
    f = Builder("strided")
    xs = []
    for i, t in enumerate(case.types):
        perm = tuple(reversed(range(t.rank)))
        shape = tuple(reversed(t.shape))
        x = f.add(Input(f"x{i}"), type=type(t)(shape, t.dtype), name=f"x{i}")
        xs.append(f.transpose(x, perm=perm))
    y = f.add(case.op, xs)
    f.outputs["y"] = f.transpose(y, perm=tuple(reversed(range(y.rank)))).name
    return f.build()


def in_place(case: Case, slot: int) -> Graph:
    """The op with an operand that is read from a variable, which then takes the result."""
    f = Builder("in_place")
    f.variables["v"] = Variable("v", case.types[slot], "state")
    xs = [
        f.add(ReadVariable("v") if i == slot else Input(f"x{i}"), type=t)
        for i, t in enumerate(case.types)
    ]
    f.updates["v"] = f.add(case.op, xs).name
    return f.build()


@pytest.mark.parametrize("name", OPS)
def test_op_agrees_with_the_reference(name: str, backend: Backend) -> None:
    for case in cases(name):
        batch = {f"x{i}": x for i, x in enumerate(case.operands())}
        check_agrees(schedule(plain(case), exact=True), backend, batch, what=str(case))


@pytest.mark.parametrize("name", OPS)
def test_op_takes_operands_of_any_strides(name: str, backend: Backend) -> None:
    for case in sample_cases([op_named(name)]):
        batch = {f"x{i}": x.T for i, x in enumerate(case.operands())}
        check_agrees(schedule(strided(case), exact=True), backend, batch, what=str(case))


@pytest.mark.parametrize("name", [n for n in OPS if op_named(n).in_place])
def test_op_updates_a_variable_in_place(name: str, backend: Backend) -> None:
    for case in cases(name):
        result = infer_type(case.op, case.types)
        for slot, t in enumerate(case.types):
            if (t.shape, t.dtype) == (result.shape, result.dtype):
                values = case.operands()
                batch = {f"x{i}": x for i, x in enumerate(values) if i != slot}
                program = schedule(in_place(case, slot), exact=True)
                check_agrees(program, backend, batch, {"v": values[slot]}, what=str(case))


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("slots", ["aab", "aba", "baa", "abb", "aaa", "abcab"])
def test_a_sum_takes_a_contribution_twice(order: Order, slots: str, backend: Backend) -> None:
    f = Builder("twice")
    t = TensorType((3, 4), F32)
    inputs = {n: f.tanh(f.add(Input(n), type=t, name=n)) for n in sorted(set(slots))}
    f.outputs["y"] = f.add(Aggregate(order), [inputs[n] for n in slots]).name
    batch = {n: np.full((3, 4), i + 1.0) for i, n in enumerate(inputs)}
    check_agrees(schedule(f.build()), backend, batch, what=f"aggregate of {slots}")
