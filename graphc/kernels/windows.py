"""Windows as views: convolution and its gradients without a copy of every window."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from graphc.kernels.nodes import Contract, Read
from graphc.layout import MemoryLayout
from graphc.ops.contract import parse_spec
from graphc.ops.windows import FoldWindows, Windows


def backwards(read: Read, dim: int) -> Read:
    """What is read, from the last entry along a dim to the first."""
    layout = read.layout
    strides = tuple(-s if d == dim else s for d, s in enumerate(layout.strides))
    offset = layout.offset + (layout.shape[dim] - 1) * layout.strides[dim]
    return Read(read.value, MemoryLayout(layout.shape, strides, offset), read.dtype)


def window_read(read: Read, op: Windows, shape: tuple[int, ...]) -> Read:
    """The windows of a tensor, as a view of it whose entries overlap."""
    strides = list(read.layout.strides)
    taps = [strides[d] * r for d, r in zip(op.at, op.dilations, strict=True)]
    for d, s in zip(op.at, op.strides, strict=True):
        strides[d] *= s
    return Read(read.value, MemoryLayout(shape, (*strides, *taps), read.layout.offset), read.dtype)


def folded(read: Read, op: FoldWindows, whole: MemoryLayout) -> list[tuple[Read, MemoryLayout]]:
    """For each tap of the windows: its entries, and where they are added."""
    rank = len(read.layout.shape) - len(op.at)
    sizes, steps = read.layout.shape[rank:], read.layout.strides[rank:]
    parts = []
    for number in range(prod(sizes)):
        tap: list[int] = []
        for n in reversed(sizes):
            number, k = divmod(number, n)
            tap.insert(0, k)
        source = MemoryLayout(
            read.layout.shape[:rank], read.layout.strides[:rank],
            read.layout.offset + sum(k * s for k, s in zip(tap, steps, strict=True)),
        )  # fmt: skip
        target = whole
        for d, k, s, r in zip(op.at, tap, op.strides, op.dilations, strict=True):
            count = read.layout.shape[d]
            target = target.sliced(d, k * r, k * r + (count - 1) * s + 1, s)
        parts.append((Read(read.value, source, read.dtype), target))
    return parts


@dataclass(frozen=True)
class Transposed:
    """A fold of windows of a product, written as a product with windows of one of its operands.

    The gradient of a convolution to its input: `dx[y] = sum over k of dy[y - k] w[k]`, with dy
    padded (Dumoulin, Visin 2016, section 4). The taps are gone through from the last to the first,
    so that dy is read forwards. side: the operand that is padded, to the shape `padded`, with `low`
    entries in front of some of its dims; taps: (its dim, entries, dilation); backwards: the dims of
    the other operand that are the taps
    """

    contract: Contract
    spec: str
    side: int
    padded: tuple[int, ...]
    low: tuple[tuple[int, int], ...]
    taps: tuple[tuple[int, int, int], ...]
    backwards: tuple[int, ...]

    def windows(self, room: MemoryLayout) -> MemoryLayout:
        """The windows of the padded operand: its dims, and one for each tap."""
        shape, strides = list(room.shape), list(room.strides)
        for d, count, dilation in self.taps:
            shape[d] -= (count - 1) * dilation
            shape.append(count)
            strides.append(dilation * room.strides[d])
        return MemoryLayout(tuple(shape), tuple(strides), room.offset)

    def other(self, read: Read) -> Read:
        """The other operand, with its taps from the last to the first."""
        for d in self.backwards:
            read = backwards(read, d)
        return read


def transposed(
    contract: Contract, read: Read, op: FoldWindows, lengths: tuple[int, ...]
) -> Transposed | None:
    """The fold (with steps of 1) of a product's result; None where it cannot be written so."""
    names = names_of(contract, read)
    if names is None:
        return None
    rank = len(names) - len(op.at)
    moved, taps = [names[d] for d in op.at], names[rank:]
    left, right, _ = parse_spec(contract.spec)
    sides = [left, right]
    side = next((k for k in (0, 1) if set(moved) <= set(sides[k])), None)
    if side is None or set(moved) & set(sides[1 - side]) or set(taps) & set(sides[side]):
        return None
    g = contract.reads[side].layout
    padded, low, windows = list(g.shape), [], []
    fresh = dict(zip(moved, (x for x in _LETTERS if x not in contract.spec), strict=False))
    for d, x, k, r in zip(op.at, moved, read.layout.shape[rank:], op.dilations, strict=True):
        at = sides[side].index(x)
        low.append((at, (k - 1) * r))
        windows.append((at, k, r))
        padded[at] = lengths[d] + (k - 1) * r
        if lengths[d] != g.shape[at] + (k - 1) * r:
            return None
    sides[side] = "".join(fresh.get(x, x) for x in sides[side]) + "".join(taps)
    out = "".join(fresh.get(x, x) for x in names[:rank])
    spec = f"{sides[0]},{sides[1]}->{out}"
    other = tuple(sides[1 - side].index(x) for x in taps)
    return Transposed(contract, spec, side, tuple(padded), tuple(low), tuple(windows), other)


_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def names_of(contract: Contract, read: Read) -> list[str] | None:
    """The letter of each dim that is read; None unless they are the dims of the result."""
    out = contract.spec.partition("->")[2]
    whole = MemoryLayout.dense(contract.shape)
    free = dict(zip(out, zip(contract.shape, whole.strides, strict=True), strict=True))
    names = []
    for n, stride in zip(read.layout.shape, read.layout.strides, strict=True):
        x = next((x for x, (m, s) in free.items() if m == n and (s == stride or n == 1)), None)
        if x is None:
            return None
        names.append(x)
        del free[x]
    return None if free or read.layout.offset else names
