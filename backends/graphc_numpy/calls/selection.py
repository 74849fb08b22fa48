"""`select` by bits: entries are taken by a mask of ones and zeros, without a branch per entry.

`np.where` and `np.copyto(where=)` branch on every entry, which costs some nanoseconds each where
the condition is irregular; three passes of integer operations over a block in cache cost less.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphc_numpy.memory import Scratch

Array: TypeAlias = NDArray[Any]
Call: TypeAlias = Callable[[], Any]
BLOCK = 1 << 14  # entries
_INTEGERS = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


def bind_select(
    c: Array, a: Array, b: Array, out: Array, scratch: Scratch, b_is_zero: bool = False
) -> list[Call]:
    """The calls that write `a where c, else b` to out, which may lie on a or b."""
    integer = np.dtype(_INTEGERS[out.itemsize])
    operands = [c.view(np.int8), *(x.view(integer) for x in (a, b, out))]
    flat = [x for x in map(_flat, operands) if x is not None]
    pieces = [operands]
    if len(flat) == len(operands) and out.size > BLOCK:
        starts = range(0, out.size, BLOCK)
        pieces = [[x[i : i + BLOCK] if x.size > 1 else x for x in flat] for i in starts]
    for slot in (3, 4):
        scratch.reserve(slot, pieces[0][3].shape, integer)
    by_bits = _kept if b_is_zero else _chosen
    return [partial(by_bits, scratch, *piece) for piece in pieces]


def _flat(x: Array) -> Array | None:
    """x in one dim, of one entry where it repeats that; None where it would have to be copied."""
    if x.flags.c_contiguous:
        return x.reshape(-1)
    if not any(s for s, n in zip(x.strides, x.shape, strict=True) if n > 1):
        return x[(slice(0, 1),) * x.ndim].reshape(-1)
    return None


def _mask(scratch: Scratch, c: Array, out: Array) -> Array:
    """All ones where the condition holds, else zero."""
    mask = scratch.take(3, out.shape, out.dtype)
    np.copyto(mask, c)
    return np.negative(mask, out=mask)


def _chosen(scratch: Scratch, c: Array, a: Array, b: Array, out: Array) -> None:
    mask, other = _mask(scratch, c, out), scratch.take(4, out.shape, out.dtype)
    np.bitwise_xor(a, b, out=other)
    np.bitwise_and(other, mask, out=other)
    np.bitwise_xor(b, other, out=out)


def _kept(scratch: Scratch, c: Array, a: Array, b: Array, out: Array) -> None:
    """`a where c, else 0`."""
    np.bitwise_and(a, _mask(scratch, c, out), out=out)
