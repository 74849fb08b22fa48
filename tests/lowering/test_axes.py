"""Loop axes: whatever is done with them, every access reaches the same elements in their order."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphc.ir.types import F32, I64
from graphc.lowering.kernel.axes import LoopAxis, axes_of, lowest, merged, reaches, split, with_axes
from graphc.lowering.kernel.code import (
    Access,
    AxisIndex,
    Gemm,
    Load,
    Nest,
    Number,
    Parameter,
    Phase,
    Side,
    Store,
)

STRIDES = st.integers(-8, 8)
AXES = st.lists(st.builds(LoopAxis, st.integers(1, 4), st.tuples(STRIDES, STRIDES)), max_size=5)
PARAMS = (Parameter(F32), Parameter(F32), Parameter(F32, written=True))


def elements(axes: list[LoopAxis]) -> list[tuple[int, int]]:
    """What both accesses reach, turn by turn."""
    turns = product(*(range(a.size) for a in axes))
    return [
        (
            sum(i * a.strides[0] for i, a in zip(at, axes, strict=True)),
            sum(i * a.strides[1] for i, a in zip(at, axes, strict=True)),
        )
        for at in turns
    ]


@given(AXES)
def test_merged_axes_reach_the_same_elements_in_the_same_order(axes: list[LoopAxis]) -> None:
    assert elements(merged(axes)) == elements(axes)


@given(st.sampled_from([2, 3, 4]), st.sampled_from([1, 2, 5]), st.tuples(STRIDES, STRIDES))
def test_an_axis_that_is_split_is_one_again_when_it_is_merged(
    outer: int, inner: int, strides: tuple[int, int]
) -> None:
    axis = LoopAxis(outer * inner, strides, row=3, step=2)
    parts = split(axis, [inner])
    assert elements(parts) == elements([axis])
    assert [(a.step, a.row) for a in parts] == [(2 * inner, 3 * inner), (2, 3)]
    assert merged(parts) == [axis]


@given(AXES)
def test_the_lowest_element_is_the_least_that_is_reached(axes: list[LoopAxis]) -> None:
    assert [lowest(axes, k) for k in (0, 1)] == [min(x) for x in zip(*elements(axes), strict=True)]


def test_axes_whose_index_is_used_and_those_of_two_groups_stay_apart() -> None:
    outer, inner = LoopAxis(2, (4,), "rows"), LoopAxis(4, (1,), "rows")
    assert len(merged([outer, inner])) == 1
    assert len(merged([replace(outer, group="columns"), inner])) == 2
    assert len(merged([outer, replace(inner, counted=True)])) == 2
    assert len(merged([replace(outer, strides=(5,)), inner])) == 2


NEST = Nest(
    PARAMS[1:], (2, 1, 3), (5,),
    (Phase(True, (Load(0, Access(0, (15, 15, 5, 1), 7)), AxisIndex(1, 2), AxisIndex(2, 1),
                  Store(Access(1, (15, 15, 5, 1)), 0))),),
)  # fmt: skip
GEMM = Gemm(
    PARAMS, Side(0, (20,), (5,), (1,), (0,)), Side(1, (0,), (0,), (3,), (1,), 2),
    (2,), (4,), (5,), (3,), F32, (Store(Access(2, (12, 3, 1)), 0),),
)  # fmt: skip


@pytest.mark.parametrize("kernel", [NEST, GEMM])
def test_a_kernel_of_its_own_axes_is_the_kernel(kernel: Nest | Gemm) -> None:
    assert with_axes(kernel, axes_of(kernel)) == kernel
    assert {len(a.strides) for a in axes_of(kernel)} == {len(reaches(kernel))}


def test_indices_follow_their_axes_and_are_0_along_those_that_are_gone() -> None:
    two, one, three, columns = axes_of(NEST)
    assert [a.counted for a in (two, one, three, columns)] == [False, True, True, False]
    made = with_axes(NEST, [three, two, columns])
    assert made.rows == (3, 2)
    load, *indices, _ = made.phases[0].code
    assert load == Load(0, Access(0, (5, 15, 1), 7))
    assert indices == [AxisIndex(1, 0), Number(2, 0, I64)]


def test_axes_of_a_sum_are_of_the_operands_alone() -> None:
    batch, rows, cols, summed = axes_of(GEMM)
    assert summed.strides == (1, 3, 0)
    made = with_axes(GEMM, [summed, cols, rows, batch])
    assert made == GEMM
    halves = with_axes(GEMM, [batch, *split(rows, [2]), cols, summed])
    assert (halves.rows, halves.left.rows, halves.right.rows) == ((2, 2), (10, 5), (0, 0))
    assert halves.code == (Store(Access(2, (12, 6, 3, 1)), 0),)
