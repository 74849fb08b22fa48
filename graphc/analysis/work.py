"""The work of an op, and what it is worth in bytes.

An op does one multiply-add for each combination of indices of its dims: the product of their
lengths. Reading or sending a byte takes about as long as `MULTIPLY_ADDS` of them. One core of an
EPYC with AVX-512 does 1.0e11 multiply-adds a second (in the steps of the workloads `wide` and
`transformer` of tests/benchmarks), and reads what another core has just written at 1.1e10 bytes a
second (blocks of 256 KiB, NumPy's copy). That is 10 multiply-adds a byte; links between processes
and hosts are slower, so it is rounded up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from graphc.ir.dims import DimsRule

MULTIPLY_ADDS = 16.0  # that are worth a byte


def multiply_adds(rule: DimsRule, shapes: Iterable[Sequence[int]]) -> float:
    """The product of the lengths of an op's dims. shapes: of its operands and of its result."""
    lengths: dict[tuple[str, ...], int] = {}
    for dims, shape in zip((*rule.operands, rule.result), shapes, strict=True):
        for dim, length in zip(dims, shape, strict=True):
            if not dim.index:
                lengths[dim.letters] = length
    return float(prod(lengths.values()))
