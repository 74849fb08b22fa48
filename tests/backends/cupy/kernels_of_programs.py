"""Memory for the kernels of whole programs, whatever they reach."""

from __future__ import annotations

import numpy as np
from backends.native.test_products import Array
from lowering.reach import spans

from graphc.ir.types import BOOL, DType
from graphc.lowering.kernel.code import LoopKernel


def memory_of(kernel: LoopKernel, seed: int = 0) -> list[Array]:
    """An array for each parameter, of as many entries as the kernel reaches."""
    rng, ends = np.random.default_rng(seed), [0] * len(kernel.params)
    for slot, low, high in spans(kernel):
        assert low >= 0
        ends[slot] = max(ends[slot], high)
    sized = zip(ends, kernel.params, strict=True)
    return [_numbers(rng, n // p.dtype.bytes, p.dtype) for n, p in sized]


def _numbers(rng: np.random.Generator, n: int, dtype: DType) -> Array:
    if dtype.kind == "f":
        return np.asarray(rng.standard_normal(n)).astype(dtype.numpy)
    return rng.integers(0, 2 if dtype == BOOL else 4, n).astype(dtype.numpy)
