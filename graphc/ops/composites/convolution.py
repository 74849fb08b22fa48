"""Convolutions, products with sliding windows, and their transposes. Channels come last."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from graphc.ir.builder import Builder, Operand, Value
from graphc.ir.op import require
from graphc.ir.registry import composite
from graphc.ir.types import promote
from graphc.ops.composites.sliding import Padding, each, widths, windows_of
from graphc.ops.composites.support import reshaped
from graphc.ops.contract import Einsum
from graphc.ops.slicing import Slice
from graphc.ops.windows import FoldWindows


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

    x [n, length, c], w [p, c / groups, o], b [o]; padding as in conv2d, or "causal": all of it
    before, so that no place sees later ones.
    """
    return _convolution(f, f.lift(x), f.lift(w), b, 1, stride, padding, dilation, groups)


@composite
def conv3d(
    f: Builder, x: Operand, w: Operand, b: Operand | None = None, stride: int | Sequence[int] = 1,
    padding: Padding = "same", dilation: int | Sequence[int] = 1, groups: int = 1,
) -> Value:  # fmt: skip
    """`y[n, i, j, k, o] = sum w[p, q, r, c, o] * x[n, i*stride + p*dilation, .., c] + b[o]`

    x [n, depth, height, width, c], w [p, q, r, c / groups, o], b [o]; padding as in conv2d.
    """
    return _convolution(f, f.lift(x), f.lift(w), b, 3, stride, padding, dilation, groups)


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
    sizes, strides = w.shape[:rank], each(name, stride, rank)
    dilations = each(name, dilation, rank)
    seen = windows_of(f, x, sizes, strides, dilations, padding, 0)
    y = _weighted(f, seen, w, rank, groups)
    return y if b is None else y + b


def _weighted(f: Builder, seen: Value, w: Value, rank: int, groups: int) -> Value:
    """The product of the windows [n, i.., c, p..] with w [p.., c, o]."""
    places, taps = "ijk"[:rank], "pqr"[:rank]
    if groups == 1:
        return f.add(Einsum(f"n{places}c{taps},{taps}co->n{places}o"), (seen, w))
    lead, channels, tail = seen.shape[: rank + 1], seen.shape[rank + 1], seen.shape[rank + 2 :]
    seen = reshaped(f, seen, (*lead, groups, channels // groups, *tail))
    out = w.shape[-1]
    w = reshaped(f, w, (*w.shape[:-1], groups, out // groups))
    y = f.add(Einsum(f"n{places}gc{taps},{taps}cgo->n{places}go"), (seen, w))
    return reshaped(f, y, (*lead, out))


# -- transposed ----------------------------------------------------------------------------------


@composite
def conv_transpose1d(
    f: Builder, x: Operand, w: Operand, b: Operand | None = None, stride: int | Sequence[int] = 1,
    padding: Padding = "same", dilation: int | Sequence[int] = 1, groups: int = 1,
    output_padding: int | Sequence[int] = 0,
) -> Value:  # fmt: skip
    """`y[n, i*stride + p*dilation, o] += sum w[p, c, o] * x[n, i, c]`, then + b[o]

    x [n, length, c], w [p, c, o / groups], b [o]; padding as in conv_transpose2d.
    """
    options = stride, padding, dilation, groups, output_padding
    return _transposed(f, f.lift(x), f.lift(w), b, 1, *options)


@composite
def conv_transpose2d(
    f: Builder, x: Operand, w: Operand, b: Operand | None = None, stride: int | Sequence[int] = 1,
    padding: Padding = "same", dilation: int | Sequence[int] = 1, groups: int = 1,
    output_padding: int | Sequence[int] = 0,
) -> Value:  # fmt: skip
    """`y[n, i*stride + p*dilation, j*stride + .., o] += sum w[p, q, c, o] * x[n, i, j, c]`, + b[o]

    x [n, height, width, c], w [p, q, c, o / groups], b [o]. padding is what a convolution from y
    to x has, and is cut off: "same" gives length * stride, "valid" all that is written,
    (length - 1) * stride + (size - 1) * dilation + 1; output_padding more entries at the end.
    """
    options = stride, padding, dilation, groups, output_padding
    return _transposed(f, f.lift(x), f.lift(w), b, 2, *options)


@composite
def conv_transpose3d(
    f: Builder, x: Operand, w: Operand, b: Operand | None = None, stride: int | Sequence[int] = 1,
    padding: Padding = "same", dilation: int | Sequence[int] = 1, groups: int = 1,
    output_padding: int | Sequence[int] = 0,
) -> Value:  # fmt: skip
    """`y[n, i*stride + p*dilation, .., o] += sum w[p, q, r, c, o] * x[n, i, j, k, c]`, then + b[o]

    x [n, depth, height, width, c], w [p, q, r, c, o / groups], b [o]; see conv_transpose2d.
    """
    options = stride, padding, dilation, groups, output_padding
    return _transposed(f, f.lift(x), f.lift(w), b, 3, *options)


def _transposed(
    f: Builder, x: Value, w: Value, b: Operand | None, rank: int, stride: int | Sequence[int],
    padding: Padding, dilation: int | Sequence[int], groups: int,
    output_padding: int | Sequence[int],
) -> Value:  # fmt: skip
    name = f"conv_transpose{rank}d"
    good = x.rank == w.rank == rank + 2 and x.shape[-1] == w.shape[-2]
    text = f"{name}: x {x.shape}, w {w.shape}, groups {groups}"
    require(good and groups >= 1 and x.shape[-1] % groups == 0, text)
    dtype = promote(x.dtype, w.dtype)
    x, w = f.to_dtype(x, dtype), f.to_dtype(w, dtype)
    strides, dilations = each(name, stride, rank), each(name, dilation, rank)
    more = each(name, output_padding, rank, least=0)
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape, dilations, strict=False)]
    lengths = [n * s for n, s in zip(x.shape[1:-1], strides, strict=True)]
    cut = widths(padding, lengths, reach, strides)
    places = zip(x.shape[1:-1], strides, reach, strict=True)
    full = [(n - 1) * s + r for n, s, r in places]
    if padding == "same":
        ends = [a + n for n, (a, _) in zip(lengths, cut, strict=True)]
    else:
        ends = [n - z for n, (_, z) in zip(full, cut, strict=True)]
    ends = [n + m for n, m in zip(ends, more, strict=True)]
    y = f.add(
        FoldWindows(tuple(range(1, rank + 1)), tuple(map(max, full, ends)), strides, dilations),
        (_spread(f, x, w, rank, groups),),
    )
    for d, ((start, _), stop) in enumerate(zip(cut, ends, strict=True), start=1):
        require(start < stop, f"{text}: padding {padding} leaves nothing of dim {d}")
        if (start, stop) != (0, y.shape[d]):
            y = f.add(Slice(d, start, stop), (y,))
    return y if b is None else y + b


def _spread(f: Builder, x: Value, w: Value, rank: int, groups: int) -> Value:
    """What each entry of x [n, i.., c] writes with w [p.., c, o]: [n, i.., o, p..]."""
    places, taps = "ijk"[:rank], "pqr"[:rank]
    if groups == 1:
        return f.add(Einsum(f"n{places}c,{taps}co->n{places}o{taps}"), (x, w))
    parts = x.shape[-1] // groups
    x = reshaped(f, x, (*x.shape[:-1], groups, parts))
    w = reshaped(f, w, (*w.shape[:-2], groups, parts, w.shape[-1]))
    y = f.add(Einsum(f"n{places}gc,{taps}gco->n{places}go{taps}"), (x, w))
    lead, sizes = y.shape[: rank + 1], y.shape[rank + 3 :]
    return reshaped(f, y, (*lead, prod(y.shape[rank + 1 : rank + 3]), *sizes))
