"""The layout of a tensor in memory, by which a view can be planned without touching memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import prod


@dataclass(frozen=True, slots=True)
class MemoryLayout:
    """Entry (i, j, ...) of a tensor of `shape` is element `offset + i*strides[0] + ...`."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @staticmethod
    @lru_cache(maxsize=1 << 12)  # a graph has many tensors, and few shapes
    def dense(shape: tuple[int, ...]) -> MemoryLayout:
        """Row-major, without gaps."""
        strides, step = [], 1
        for n in reversed(shape):
            strides.append(step)
            step *= n
        return MemoryLayout(shape, tuple(reversed(strides)))

    @property
    def is_dense(self) -> bool:
        """Whether the entries are in row-major order without gaps."""
        dense = MemoryLayout.dense(self.shape).strides
        if self.strides == dense or 0 in self.shape:
            return True
        return all(
            n == 1 or s == d for n, s, d in zip(self.shape, self.strides, dense, strict=True)
        )

    @property
    def reach(self) -> int:
        """One past the last element that an entry lies at."""
        if 0 in self.shape:
            return self.offset
        return (
            self.offset
            + 1
            + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        )

    def transposed(self, perm: tuple[int, ...]) -> MemoryLayout:
        """The dims in the order `perm`."""
        shape, strides = self.shape, self.strides
        return MemoryLayout(
            tuple(shape[i] for i in perm), tuple(strides[i] for i in perm), self.offset
        )

    def repeated(self, shape: tuple[int, ...], at: tuple[int, ...]) -> MemoryLayout:
        """Dim i becomes dim `at[i]` of `shape`; the others repeat it."""
        strides = [0] * len(shape)
        for dim, stride in zip(at, self.strides, strict=True):
            strides[dim] = stride
        return MemoryLayout(shape, tuple(strides), self.offset)

    def sliced(self, dim: int, start: int, stop: int, step: int) -> MemoryLayout:
        """The entries start, start + step, ... below stop along dim."""
        shape, strides = list(self.shape), list(self.strides)
        shape[dim] = len(range(start, stop, step))
        strides[dim] *= step
        first = self.offset + start * self.strides[dim] if shape[dim] else self.offset
        return MemoryLayout(tuple(shape), tuple(strides), first)

    def reshaped(self, shape: tuple[int, ...]) -> MemoryLayout | None:
        """The same entries in row-major order in another shape; None if they must be moved."""
        assert prod(shape) == prod(self.shape), f"{self} has no shape {shape}"
        if self.is_dense:
            return MemoryLayout(shape, MemoryLayout.dense(shape).strides, self.offset)
        old = [(n, s) for n, s in zip(self.shape, self.strides, strict=True) if n != 1]
        new = [n for n in shape if n != 1]
        strides: list[int] = []
        while old:
            block, sizes = _equal_products(old, new)
            if any(s != n2 * s2 for (_, s), (n2, s2) in pairwise(block)):
                return None
            strides += [s * block[-1][1] for s in MemoryLayout.dense(tuple(sizes)).strides]
            old, new = old[len(block) :], new[len(sizes) :]
        rest = iter(strides)
        return MemoryLayout(shape, tuple(next(rest) if n != 1 else 0 for n in shape), self.offset)


def _equal_products(
    old: list[tuple[int, int]], new: list[int]
) -> tuple[list[tuple[int, int]], list[int]]:
    """The shortest heads of both lists that have as many entries."""
    i = j = 1
    a, b = old[0][0], new[0]
    while a != b:
        if a < b:
            a, i = a * old[i][0], i + 1
        else:
            b, j = b * new[j], j + 1
    return old[:i], new[:j]
