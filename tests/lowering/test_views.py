"""A product is narrowed to what views of its result read, and never widened."""

from __future__ import annotations

import random
from collections.abc import Iterator
from math import prod

import numpy as np
import pytest
from lowering.compiled import kernels_of, program_of
from lowering.structures import VIEWS

from graphc.ir.op import Op
from graphc.ir.types import F32, TensorType
from graphc.lowering.kernel.code import Gemm
from graphc.lowering.nodes.views import Views, box, moves_dims, seen_through
from graphc.lowering.program.program import Buffer, Kernel
from graphc.lowering.program.strides import MemoryLayout
from graphc.ops.reshape import Reshape
from graphc.ops.shape import Broadcast, Transpose
from graphc.ops.slicing import Slice


@pytest.mark.parametrize("name", VIEWS)
def test_a_dim_of_length_one_is_not_widened(name: str) -> None:
    """Each product multiplies as often as it would if its result had no views."""
    x = VIEWS[name]
    program = program_of(x.loss, x.params, x.batch)
    sizes = {b.id: prod(b.shape) for b in program.buffers if b.kind == "arena"}
    largest = max(sizes.values())
    for k in (k for k in kernels_of(program) if isinstance(k, Gemm)):
        assert prod((*k.batch, *k.rows, *k.cols)) <= largest, k


def a_view(shape: tuple[int, ...], *ops: Op) -> tuple[Buffer, Buffer, Views]:
    """A view of a tensor, made by ops one after the other; the tensor; and what makes each view."""
    buffers, views = [Buffer(0, "base", shape, F32)], {}
    for k, op in enumerate(ops):
        shape = op.infer(TensorType(shape, F32)).shape
        buffers.append(Buffer(k + 1, f"view{k}", shape, F32, "view", 0))
        views[k + 1] = Kernel(op, (k,), k + 1, f"view{k}")
    return buffers[-1], buffers[0], views


def test_a_view_that_goes_on_from_one_dim_into_the_next_is_no_part_of_them() -> None:
    flat = Reshape((24,))
    assert not moves_dims(*a_view((4, 6), flat))
    assert not moves_dims(*a_view((4, 6), flat, Slice(0, 3, 7, 1)))
    assert not moves_dims(*a_view((4, 6), Transpose((1, 0)), Reshape((2, 12))))
    assert moves_dims(*a_view((4, 6), Reshape((2, 2, 6)), Transpose((2, 0, 1))))
    assert moves_dims(*a_view((4, 1, 6), Reshape((4, 6)), Broadcast((3, 4, 6), (1, 2))))


@pytest.mark.parametrize("seed", range(200))
def test_a_box_holds_all_that_a_view_reads_and_reaches_its_ends(seed: int) -> None:
    r = random.Random(seed)
    shape = tuple(r.choice((1, 2, 3, 6)) for _ in range(r.randrange(1, 4)))
    view, base, views = a_view(shape, *_random_views(r, shape))
    if not moves_dims(view, base, views):
        return
    numbers = np.arange(prod(shape))
    seen = seen_through(view.id, MemoryLayout.dense(shape), views)
    assert seen is not None
    steps = [8 * s for s in seen.strides]
    read = np.lib.stride_tricks.as_strided(numbers[seen.offset :], seen.shape, steps)
    indices = np.unravel_index(read, shape)
    assert box(view, base, views) == [(int(i.min()), int(i.max()) + 1) for i in indices]


def _random_views(r: random.Random, shape: tuple[int, ...]) -> Iterator[Op]:
    for _ in range(r.randrange(1, 5)):
        dim = r.randrange(len(shape))
        start = r.randrange(shape[dim])
        op: Op = r.choice((
            Transpose(tuple(r.sample(range(len(shape)), len(shape)))),
            Slice(dim, start, r.randrange(start + 1, shape[dim] + 1), r.choice((1, 2))),
            Reshape((*shape[:dim], 1, *shape[dim:])),
            Reshape((prod(shape),)),
            Broadcast((2, *shape), tuple(range(1, len(shape) + 1))),
        ))  # fmt: skip
        shape = op.infer(TensorType(shape, F32)).shape
        yield op
