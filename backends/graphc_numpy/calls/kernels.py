"""How each op is bound to arrays: a list of calls that together write its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphc.ir.op import Op
from graphc.lowering.program.strides import MemoryLayout
from graphc.ops.contract import Einsum
from graphc.ops.elementwise import Aggregate, Elementwise, Select
from graphc.ops.indexing import Gather, ScatterAdd, checked
from graphc.ops.ordering import Cumsum
from graphc.ops.reduce import ReduceMax, ReduceMin, ReduceSum, highest, lowest, sum_blocks
from graphc.ops.reshape import Reshape
from graphc.ops.shape import Reverse
from graphc.ops.slicing import Concat, Pad
from graphc.ops.unary import Cast
from graphc.ops.windows import FoldWindows, Windows, window_view
from graphc_numpy.calls.blocks import bind_blocks
from graphc_numpy.calls.products import bind_product
from graphc_numpy.calls.reductions import bind_extreme, bind_sum, scatter_rows
from graphc_numpy.calls.selection import bind_select
from graphc_numpy.memory import Scratch

Array: TypeAlias = NDArray[Any]
Call: TypeAlias = Callable[[], Any]
BLOCK = 1 << 14  # entries of an elementwise op without a ufunc that are computed at once


def bind(
    op: Op, xs: Sequence[Array], out: Array, scratch: Scratch, zeros: Sequence[bool] = ()
) -> list[Call]:
    """The calls that write op(xs) to out, which may lie on an operand where the op says so.

    zeros: which operands are always zero.
    """
    half = out.dtype.itemsize == 2
    match op:
        case Einsum(spec=spec, blocks=blocks) if blocks:
            return bind_blocks(spec, dict(blocks), xs[0], xs[1], out, scratch)
        case Einsum(spec=spec):
            return bind_product(spec, xs[0], xs[1], out, scratch)
        case Select():
            return bind_select(xs[0], xs[1], xs[2], out, scratch, any(zeros[2:]))
        case Cast():
            return [partial(np.copyto, out, xs[0], casting="unsafe")]
        case Aggregate() if not half and (op.order != "tree" or len(xs) <= 3):
            return _sum(xs, out)
        case Elementwise(ufunc=ufunc) if ufunc is not None and _loop_is(ufunc, xs, out):
            return [partial(ufunc, *xs, out=out)]
        case ReduceSum(over=over, blocks=blocks) if blocks:
            return [partial(sum_blocks, xs[0], over, dict(blocks), out)]
        case ReduceSum(over=over) if over and not half:
            return bind_sum(xs[0], over, out)
        case ReduceMax(over=over) if over:
            return bind_extreme(np.maximum, xs[0], over, lowest(out.dtype), out)
        case ReduceMin(over=over) if over:
            return bind_extreme(np.minimum, xs[0], over, highest(out.dtype), out)
        case Cumsum(dim=dim) if not half:
            return [partial(np.add.accumulate, xs[0], dim, out.dtype, out)]
        case Gather(dim=dim):
            return [partial(_gather, xs[0], xs[1], dim, out)]
        case ScatterAdd() if adds_rows(op, out):
            return [partial(scatter_rows, xs[0], xs[1], out)]
        case Windows():
            view = window_view(xs[0], op.at, op.sizes, op.strides, op.dilations)
            return [partial(np.copyto, out, view)]
        case FoldWindows() if not half:
            return [partial(out.fill, 0), *_folds(op, xs[0], out)]
        case Pad():
            return [partial(out.fill, 0), partial(np.copyto, _unpadded(op, out), xs[0])]
        case Concat(dim=dim):
            return [partial(np.concatenate, xs, dim, out)]
        case Reverse(dim=dim):
            return [partial(np.copyto, out, np.flip(xs[0], dim))]
        case Op(view=True):
            return [_copy_of_view(op, xs[0], out)]
        case Op(elementwise=True):
            return _in_blocks(op, xs, out)
        case _:
            return [partial(_run, op, xs, out)]


def adds_rows(op: ScatterAdd, out: Array) -> bool:
    """Whether whole rows are summed, and written once: `scatter_rows`."""
    return op.dim == 0 and out.dtype.itemsize != 2


def _run(op: Op, xs: Sequence[Array], out: Array) -> None:
    np.copyto(out, op.run(*xs))


def _loop_is(ufunc: np.ufunc, xs: Sequence[Array], out: Array) -> bool:
    """Whether the ufunc computes on these dtypes as they are and gives the result's."""
    given = tuple(x.dtype for x in xs)
    try:
        found = ufunc.resolve_dtypes((*given, None))
    except TypeError:  # also for a dtype from outside NumPy that it does not resolve
        return False
    return found == (*given, out.dtype)


def _sum(xs: Sequence[Array], out: Array) -> list[Call]:
    """Left to right; of at most three operands, a tree is the same."""
    if len(xs) == 1:
        return [partial(np.copyto, out, xs[0])]
    first: list[Call] = [partial(np.add, xs[0], xs[1], out)]
    return first + [partial(np.add, out, x, out) for x in xs[2:]]


def _gather(table: Array, ids: Array, dim: int, out: Array) -> None:
    if ids.size:
        # `np.take` writes to `out` without a copy only in a mode that does not raise.
        np.take(table, checked(ids, table.shape[dim], "gather"), dim, out, mode="clip")


def _folds(op: FoldWindows, x: Array, out: Array) -> list[Call]:
    rank = x.ndim - len(op.at)
    calls: list[Call] = []
    for k in np.ndindex(*x.shape[rank:]):
        where = [slice(None)] * rank
        for d, at, s, r in zip(op.at, k, op.strides, op.dilations, strict=True):
            where[d] = slice(at * r, at * r + (x.shape[d] - 1) * s + 1, s)
        target = out[tuple(where)]
        calls.append(partial(np.add, target, x[(..., *k)], target))
    return calls


def _unpadded(op: Pad, out: Array) -> Array:
    inside = slice(op.low, out.shape[op.dim] - op.high, op.inner + 1)
    return out[(slice(None),) * op.dim + (inside,)]


def _copy_of_view(op: Op, x: Array, out: Array) -> Call:
    """A view that must be made anew: the entries are copied from where they lie."""
    size = x.itemsize
    layout = op.layout(MemoryLayout(x.shape, tuple(s // size for s in x.strides)))
    if layout is None and isinstance(op, Reshape):  # the result is dense: it takes x's shape
        return partial(np.copyto, out.reshape(x.shape), x)
    if layout is None or layout.offset:
        return partial(_run, op, (x,), out)
    strides = tuple(s * size for s in layout.strides)
    return partial(np.copyto, out, np.lib.stride_tricks.as_strided(x, layout.shape, strides))


def _in_blocks(op: Op, xs: Sequence[Array], out: Array) -> list[Call]:
    """An elementwise op by its reference kernel, block by block, so that temporaries stay small."""
    if not all(x.flags.c_contiguous for x in (*xs, out)) or out.size <= BLOCK:
        return [partial(_run, op, xs, out)]
    flat, target = [x.reshape(-1) for x in xs], out.reshape(-1)
    starts = range(0, out.size, BLOCK)
    return [
        partial(_run, op, [x[i : i + BLOCK] for x in flat], target[i : i + BLOCK]) for i in starts
    ]
