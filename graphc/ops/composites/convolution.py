"""Convolution and pooling: products and reductions over sliding windows. Channels come last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from graphc.ir.builder import Builder, Operand, Value
from graphc.ir.op import require
from graphc.ir.registry import composite
from graphc.ir.types import promote
from graphc.ops.composites.support import reshaped
from graphc.ops.contract import Einsum
from graphc.ops.reduce import ReduceMax, ReduceSum
from graphc.ops.reduce import lowest as lowest_of

Padding: TypeAlias = Literal["same", "valid"] | int | Sequence[int | Sequence[int]]


@composite
def conv2d(
    f: Builder, x: Operand, w: Operand, b: Operand | None = None, stride: int | Sequence[int] = 1,
    padding: Padding = "same", dilation: int | Sequence[int] = 1, groups: int = 1,
) -> Value:  # fmt: skip
    """`y[n, i, j, o] = sum w[p, q, c, o] * x[n, i*stride + p*dilation, j*stride + .., c] + b[o]`

    x [n, height, width, c], w [p, q, c / groups, o], b [o]. padding: "same" (length / stride,
    rounded up), "valid" (none), or numbers as in pad. The sum is a cross-correlation.
    """
    return _convolution(f, f.lift(x), f.lift(w), b, 2, stride, padding, dilation, groups)


@composite
def conv1d(
    f: Builder, x: Operand, w: Operand, b: Operand | None = None, stride: int | Sequence[int] = 1,
    padding: Padding = "same", dilation: int | Sequence[int] = 1, groups: int = 1,
) -> Value:  # fmt: skip
    """`y[n, i, o] = sum w[p, c, o] * x[n, i*stride + p*dilation, c] + b[o]`

    x [n, length, c], w [p, c / groups, o], b [o]; padding as in conv2d.
    """
    return _convolution(f, f.lift(x), f.lift(w), b, 1, stride, padding, dilation, groups)


def _convolution(
    f: Builder, x: Value, w: Value, b: Operand | None, rank: int, stride: int | Sequence[int],
    padding: Padding, dilation: int | Sequence[int], groups: int,
) -> Value:  # fmt: skip
    name = f"conv{rank}d"
    good = x.rank == w.rank == rank + 2 and x.shape[-1] == w.shape[-2] * groups
    require(
        good and w.shape[-1] % groups == 0, f"{name}: x {x.shape}, w {w.shape}, groups {groups}"
    )
    dtype = promote(x.dtype, w.dtype)
    x, w = f.to_dtype(x, dtype), f.to_dtype(w, dtype)
    sizes, strides = w.shape[:rank], _each(name, stride, rank)
    dilations = _each(name, dilation, rank)
    seen = _windows(f, x, sizes, strides, dilations, padding, 0)
    y = _weighted(f, seen, w, rank, groups)
    return y if b is None else y + b


def _weighted(f: Builder, seen: Value, w: Value, rank: int, groups: int) -> Value:
    """The product of the windows [n, i.., c, p..] with w [p.., c, o]."""
    places, taps = "ij"[:rank], "pq"[:rank]
    if groups == 1:
        return f.add(Einsum(f"n{places}c{taps},{taps}co->n{places}o"), (seen, w))
    lead, channels, tail = seen.shape[: rank + 1], seen.shape[rank + 1], seen.shape[rank + 2 :]
    seen = reshaped(f, seen, (*lead, groups, channels // groups, *tail))
    out = w.shape[-1]
    w = reshaped(f, w, (*w.shape[:-1], groups, out // groups))
    y = f.add(Einsum(f"n{places}gc{taps},{taps}cgo->n{places}go"), (seen, w))
    return reshaped(f, y, (*lead, out))


# -- pooling -------------------------------------------------------------------------------------


@composite
def max_pool(
    f: Builder, x: Operand, size: int | Sequence[int] = 2,
    stride: int | Sequence[int] | None = None, padding: Padding = "valid",
) -> Value:  # fmt: skip
    """`y` is the largest entry of every window

    x [n, height, width, c]; stride is the size unless given.
    """
    value = f.lift(x)
    seen, taps = _pooled(f, "max_pool", value, size, stride, padding, lowest_of(value.dtype.numpy))
    return f.add(ReduceMax(taps), (seen,))


@composite
def avg_pool(
    f: Builder, x: Operand, size: int | Sequence[int] = 2,
    stride: int | Sequence[int] | None = None, padding: Padding = "valid",
) -> Value:  # fmt: skip
    """`y` is the mean of every window's entries, padding not counted; as max_pool"""
    value = f.lift(x)
    seen, taps = _pooled(f, "avg_pool", value, size, stride, padding, 0)
    total = f.add(ReduceSum(taps), (seen,))
    if padding == "valid":
        return total / f.dim_size(size=seen.shape[-2] * seen.shape[-1], dtype=value.dtype)
    here, _ = _pooled(f, "avg_pool", f.ones_like(value), size, stride, padding, 0)
    return total / f.add(ReduceSum(taps), (here,))


@composite
def global_avg_pool(f: Builder, x: Operand) -> Value:
    """`y[n, c]` is the mean of x [n, .., c] over all dims but the first and the last"""
    value = f.lift(x)
    return f.mean(value, axis=tuple(range(1, value.rank - 1)))


def _pooled(
    f: Builder, name: str, x: Value, size: int | Sequence[int], stride: int | Sequence[int] | None,
    padding: Padding, fill: float,
) -> tuple[Value, tuple[int, ...]]:  # fmt: skip
    """The windows of x, and the dims of their taps."""
    require(x.rank == 4, f"{name} takes [n, height, width, c], not shape {x.shape}")
    sizes = _each(name, size, 2)
    strides = sizes if stride is None else _each(name, stride, 2)
    return _windows(f, x, sizes, strides, (1, 1), padding, fill), (4, 5)


# -- windows -------------------------------------------------------------------------------------


def _each(name: str, n: int | Sequence[int], rank: int) -> tuple[int, ...]:
    each = (n,) * rank if isinstance(n, int) else tuple(n)
    good = len(each) == rank and all(k >= 1 for k in each)
    require(good, f"{name}: {n} is not a positive number for each of {rank} dims", code="G0206")
    return each


def _windows(
    f: Builder, x: Value, sizes: Sequence[int], strides: tuple[int, ...],
    dilations: tuple[int, ...], padding: Padding, fill: float,
) -> Value:  # fmt: skip
    """Windows along dims 1, 2, ..: [n, i.., c] -> [n, places.., c, taps..]."""
    rank = len(sizes)
    reach = [(k - 1) * r + 1 for k, r in zip(sizes, dilations, strict=True)]
    widths = _widths(padding, x.shape[1 : 1 + rank], reach, strides)
    x = f.pad(x, ((0, 0), *widths, (0, 0)), fill)
    at = tuple(range(1, 1 + rank))
    return f.windows(x, at=at, sizes=tuple(sizes), strides=strides, dilations=dilations)


def _widths(
    padding: Padding, lengths: Sequence[int], reach: Sequence[int], strides: Sequence[int]
) -> list[tuple[int, int]]:
    """Padding before and after each dim."""
    match padding:
        case "valid":
            return [(0, 0)] * len(lengths)
        case "same":
            return [_same(n, k, s) for n, k, s in zip(lengths, reach, strides, strict=True)]
        case int():
            return [(padding, padding)] * len(lengths)
        case str():
            require(False, f"padding '{padding}' is not 'same' or 'valid'", code="G0206")
            raise AssertionError
        case _:
            good = all(isinstance(p, int) or len(p) == 2 for p in padding)
            require(good, f"padding {padding}: a number or a pair for each dim", code="G0206")
            pairs = [(p, p) if isinstance(p, int) else (p[0], p[1]) for p in padding]
            require(len(pairs) == len(lengths), f"padding {padding} for {len(lengths)} dims")
            return pairs


def _same(n: int, reach: int, stride: int) -> tuple[int, int]:
    """The padding after which ceil(n / stride) windows fit, the odd one at the end."""
    total = max(0, (-(-n // stride) - 1) * stride + reach - n)
    return total // 2, total - total // 2
