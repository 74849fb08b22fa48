"""The arithmetic of a collective whose arrays are all in one memory: from `xs` to `outs`.

`exchange` does one of several equal parts of a call, so that the ranks can share the work. Parts
touch different entries of the results, and do not depend on which rank computes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import prod
from typing import Any, TypeAlias

import numpy as np

from graphc.ir.leaf_tree import forests, joins
from graphc.ir.orders import Order
from graphc.ir.placement import ReduceOp
from graphc.runtime.transports.transport import (
    AllGatherCall,
    AllReduceCall,
    AllToAllCall,
    BroadcastCall,
    CollectiveCall,
    ReduceCall,
    ReduceScatterCall,
    TreeReduceCall,
    TreeReduceScatterCall,
)

Array: TypeAlias = "np.ndarray[Any, Any]"
BLOCK = 1 << 18  # bytes of a partial result: fits the cache, and is worth a release of the GIL
Joins: TypeAlias = Sequence[tuple[int, int]]
COMBINE = {"sum": np.add, "max": np.maximum, "min": np.minimum}


class Scratch:
    """Memory that is reused between calls and grows on demand."""

    def __init__(self) -> None:
        self._bytes = np.empty(0, np.uint8)

    def take(self, lanes: int, count: int, dtype: np.dtype[Any]) -> Array:
        """An uninitialised [lanes, count] array, valid until the next `take`."""
        size = lanes * count * dtype.itemsize
        if self._bytes.size < size:
            self._bytes = np.empty(size, np.uint8)
        return self._bytes[:size].view(dtype).reshape(lanes, count)


def exchange(
    call: CollectiveCall,
    xs: Sequence[Array],
    outs: Sequence[Any],
    part: int,
    parts: int,
    scratch: Scratch,
) -> None:
    """Do part `part` of `parts` (1, or one per member) of `call`.

    xs and outs: the arrays of the members by position, C-contiguous, of the shapes in the call;
    outs[i] is None if position i receives nothing. outs[i] may be xs[i] for calls that keep the
    shape.
    """
    members = range(len(xs))[part::parts]
    match call:
        case AllReduceCall(op=op, order=order) | ReduceCall(op=op, order=order):
            size = xs[0].size
            cut = np.s_[:, size * part // parts : size * (part + 1) // parts]
            targets = [_plane(out, 0)[cut] for out in outs if out is not None]
            tree = joins(len(xs), 1, len(xs)) if order is Order.TREE else None
            _reduce([_plane(x, 0)[cut] for x in xs], targets, op, tree, scratch)
        case TreeReduceCall(op=op, each=each, present=present):
            size = prod(xs[0].shape[1:])
            cut = np.s_[:, size * part // parts : size * (part + 1) // parts]
            rows = _rows(xs, each, present)
            targets = [_plane(out, 0)[cut] for out in outs if out is not None]
            tree = joins(len(xs), each, present)
            _reduce([_plane(row, 0)[cut] for row in rows], targets, op, tree, scratch)
        case ReduceScatterCall(lengths=lengths, order=order):
            tree = joins(len(xs), 1, len(xs)) if order is Order.TREE else None
            for i in members:
                span = sum(lengths[:i]), lengths[i]
                _reduce_part(xs, outs[i], call.dim, span, call.op, tree, scratch)
        case TreeReduceScatterCall(each=each, present=present, spans=spans):
            rows, tree = _rows(xs, each, present), joins(len(xs), each, present)
            for i in members:
                _reduce_part(rows, outs[i], call.dim, spans[i], call.op, tree, scratch)
        case AllGatherCall(dim=dim, lengths=lengths):
            for i in members:
                _concat(outs[i], xs, dim, lengths)
        case AllToAllCall(split_dim=dim, split_lengths=lengths):
            for i in members:
                offset, length = sum(lengths[:i]), lengths[i]
                pieces = [_along(x, dim, offset, offset + length) for x in xs]
                _concat(
                    _along(outs[i], dim, 0, length), pieces, call.concat_dim, call.concat_lengths
                )
                _along(outs[i], dim, length, None)[...] = 0
        case BroadcastCall(root=root):
            for i in members:
                np.copyto(outs[i], xs[call.group.index(root)])


def _rows(xs: Sequence[Array], each: int, present: int) -> list[Array]:
    """The pieces that the members' forests have, in order."""
    grown = forests(len(xs), each, present)
    return [x[k] for x, forest in zip(xs, grown, strict=True) for k in range(len(forest))]


def _reduce_part(
    xs: Sequence[Array], out: Array, dim: int, span: tuple[int, int], op: ReduceOp,
    tree: Joins | None, scratch: Scratch,
) -> None:  # fmt: skip
    """The reduction of a part of xs: `span` is its (offset, length) along dim."""
    unit = prod(out.shape[dim + 1 :])
    start, width = span[0] * unit, span[1] * unit
    sources = [_plane(x, dim)[:, start : start + width] for x in xs]
    target = _plane(out, dim)
    _reduce(sources, [target[:, :width]], op, tree, scratch)
    target[:, width:] = 0


def _concat(out: Array, xs: Sequence[Array], dim: int, lengths: Sequence[int]) -> None:
    """The first lengths[i] entries of each xs[i] along dim, concatenated, then zeros."""
    ends = list(accumulate(lengths))
    for x, length, end in zip(xs, lengths, ends, strict=True):
        _along(out, dim, end - length, end)[...] = _along(x, dim, 0, length)
    _along(out, dim, ends[-1], None)[...] = 0


def _along(x: Array, dim: int, start: int, stop: int | None) -> Array:
    return x[(slice(None),) * dim + (slice(start, stop),)]


def _plane(x: Array, dim: int) -> Array:
    """x as [what is before dim, the rest]: a piece along dim is a range of columns."""
    return x.reshape(prod(x.shape[:dim]), prod(x.shape[dim:]))


def _reduce(
    sources: Sequence[Array], targets: Sequence[Array], op: ReduceOp, tree: Joins | None,
    scratch: Scratch,
) -> None:  # fmt: skip
    """The reduction of the [rows, columns] sources, written to every target.

    tree: the additions in order (graphc.ir.leaf_tree.joins); left to right without it. It works in
    blocks, so that partial results stay in the cache. A target may be a source, since a block is
    written after it was read.
    """
    first, combine = sources[0], COMBINE[op]
    rows, columns = first.shape
    lanes = max(1, len(sources) // 2) if tree is not None else 1
    most = max(1, BLOCK // first.itemsize)
    memory = scratch.take(lanes, min(most, first.size), first.dtype)
    for window in _windows(rows, columns, most):
        parts = [source[window] for source in sources]
        into = [lane[: parts[0].size].reshape(parts[0].shape) for lane in memory]
        total = (
            _chain(parts, combine, into[0]) if tree is None else _tree(parts, tree, combine, into)
        )
        for target in targets:
            target[window] = total


def _windows(rows: int, columns: int, most: int) -> Iterator[tuple[slice, slice]]:
    """Cover [rows, columns] with windows of at most `most` elements."""
    height = max(1, most // max(1, columns))
    for row in range(0, rows, height):
        for column in range(0, columns, most):
            yield slice(row, row + height), slice(column, column + most)


def _chain(parts: Sequence[Array], combine: np.ufunc, into: Array) -> Array:
    total = parts[0]
    for part in parts[1:]:
        total = combine(total, part, out=into)
    return total


def _tree(parts: list[Array], tree: Joins, combine: np.ufunc, into: Sequence[Array]) -> Array:
    lanes: dict[int, Array] = {}  # part -> where its sum lies
    free = iter(into)
    for i, j in tree:
        # At most every second part begins a sum of two sources, which takes a lane of its own.
        lane = lanes.pop(i, None)
        other = lanes.pop(j, None)
        if lane is None:
            lane = other if other is not None else next(free)
        lanes[i] = parts[i] = combine(parts[i], parts[j], out=lane)
    return parts[0]
