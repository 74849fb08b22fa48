"""What an op is said to do: products of dims that are traversed together, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import pytest

import graphc.ops  # noqa: F401 (defines the ops)
from graphc.analysis.work import multiply_adds, operations
from graphc.ir.dims import parse_rule
from graphc.ir.op import Op, op_named
from graphc.ir.types import TensorType, parse_types
from graphc.testing.samples import Case, sample_cases


def work_of(op: Op, types: Sequence[TensorType]) -> float:
    shapes = [t.shape for t in (*types, op.infer(*types))]
    return multiply_adds(parse_rule(op.dims(*types)), shapes)


@pytest.mark.parametrize("case", [c for c in sample_cases() if len(c.types) == 1], ids=str)
def test_an_op_of_one_operand_does_no_more_than_its_larger_side_has_entries(case: Case) -> None:
    sizes = [prod(t.shape) for t in (*case.types, case.op.infer(*case.types))]
    assert work_of(case.op, case.types) <= max(*sizes, 1)  # 1: the sum of no entries


def test_joined_operands_are_moved_once_and_not_combined() -> None:
    types = parse_types("f32[64,100], f32[64,200], f32[64,300]")
    assert work_of(op_named("concat")(dim=1), types) == 64 * 600  # type: ignore[call-arg]
    rows = parse_types("f32[20,3,4], f32[50,1,4]")
    assert work_of(op_named("row_join")(), rows) == 110 * 4


def test_a_part_of_a_long_dim_does_not_traverse_the_dim_for_each_entry() -> None:
    types = parse_types("f32[8,1000]")
    part = op_named("slice")(dim=1, start=0, stop=500)  # type: ignore[call-arg]
    assert work_of(part, types) == 8 * 1000


def test_a_dim_that_is_not_read_is_no_work() -> None:
    rule = parse_rule("a0 a1, b0~ -> a0 a1")
    assert multiply_adds(rule, [(3, 4), (50,), (3, 4)]) == 3 * 4


@pytest.mark.parametrize(
    ("rule", "shapes", "each"),
    [
        ("b k, k n -> b n", [(2, 3), (3, 4), (2, 4)], 2),
        ("a, b -> a b", [(2,), (3,), (2, 3)], 1),
        ("n0! a, n1! a -> n! a", [(2, 3), (4, 3), (6, 3)], 1),
        ("a b -> a", [(2, 3), (2,)], 1),
    ],
)
def test_what_multiplies_and_adds_counts_twice(
    rule: str, shapes: list[tuple[int, ...]], each: int
) -> None:
    parsed = parse_rule(rule)
    assert operations(parsed, shapes) == each * multiply_adds(parsed, shapes)
