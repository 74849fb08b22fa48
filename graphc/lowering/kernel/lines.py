"""Kernels that are no loops over statements: chains of equal indices, and functions of lines.

A line is the entries along one dim. Of a tensor [a.., n, b..] there are prod(a, b) lines of n
entries; threads share the lines.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Literal, TypeAlias

from graphc.support.dataclass import dataclass

if TYPE_CHECKING:
    from graphc.lowering.kernel.code import Parameter

LineFunction: TypeAlias = Literal["running sum", "order", "sorted"]


@dataclass(frozen=True, slots=True)
class IndexLinks:
    """Parameter 1: for every place of `count` indices (parameter 0), the next one of its index.

    links[k], i32, is the next place that holds the index of place k, or `count` where there is
    none; where a place before k holds that index too, it is ~ of that (-1 - x), and so negative.
    Check `number` fails for an index that is not in [0, limit).
    """

    params: tuple[Parameter, ...]
    count: int
    limit: int
    number: int

    @property
    def work(self) -> int:
        """Places, times about what finding the place before takes."""
        return 16 * self.count


@dataclass(frozen=True, slots=True)
class LineKernel:
    """Parameter 1: a function of every line of parameter 0, as many results as entries.

    running sum: entry k is the sum of the entries up to k, one after the other; the sum of f16 and
                 bf16 is made in f32 and rounded for each entry, that of bool is whether one is true
    order:       i32; entry k is the index of the k-th smallest entry. Equal ones keep their order,
                 -0.0 equals 0.0, and every NaN comes after all numbers.
    sorted:      the entries in that order
    rows: the sizes of the axes besides the line; strides: in elements, of rows and then of the line
    part: from which result of a line to which (exclusive) they are asked for; all where None
    """

    params: tuple[Parameter, ...]
    function: LineFunction
    rows: tuple[int, ...]
    length: int
    source: tuple[int, ...]
    result: tuple[int, ...]
    part: tuple[int, int] | None = None

    @property
    def work(self) -> int:
        """Entries, times about what one takes."""
        each = 2 if self.function == "running sum" else 4 * max(self.length.bit_length(), 4)
        return prod(self.rows) * self.length * each
