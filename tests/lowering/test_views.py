"""A product is narrowed to what views of its result read, and never widened."""

from __future__ import annotations

from math import prod

import pytest
from lowering.compiled import kernels_of, program_of
from lowering.structures import VIEWS

from graphc.ir.types import F32
from graphc.lowering.kernel.code import Gemm
from graphc.lowering.nodes.views import box, sight
from graphc.lowering.program.program import Buffer


@pytest.mark.parametrize("name", VIEWS)
def test_a_dim_of_length_one_is_not_widened(name: str) -> None:
    """Each product multiplies as often as it would if its result had no views."""
    x = VIEWS[name]
    program = program_of(x.loss, x.params, x.batch)
    sizes = {b.id: prod(b.shape) for b in program.buffers if b.kind == "arena"}
    largest = max(sizes.values())
    for k in (k for k in kernels_of(program) if isinstance(k, Gemm)):
        assert prod((*k.batch, *k.rows, *k.cols)) <= largest, k


def a_view(shape: tuple[int, ...], strides: tuple[int, ...], start: int = 0) -> Buffer:
    return Buffer(1, "view", shape, F32, "view", 4 * start, 0, strides)


def test_a_view_that_goes_on_from_one_dim_into_the_next_is_no_part_of_them() -> None:
    assert sight(a_view((4,), (1,), 3), (4, 6)) is None
    assert sight(a_view((3,), (1,), 3), (4, 6)) is not None
    assert sight(a_view((4,), (7,)), (4, 6)) is None  # a diagonal
    assert sight(a_view((24,), (1,)), (4, 6)) is None


def test_a_view_along_one_dim_twice_reads_all_that_both_reach() -> None:
    base = Buffer(0, "base", (10, 1), F32)
    windows = a_view((4, 3), (2, 1), 1)
    assert box(windows, base) == [(1, 10), (0, 1)]
