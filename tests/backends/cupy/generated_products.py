"""Products of any kind, by number: groups of axes, orders, directions and dtypes; code on the sums.

Sizes are small, but for inner, of which some have several blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np
from backends.native.test_products import Array, Sizes, contraction, dense, memory

from graphc.ir.types import BF16, BOOL, F16, F32, F64, I32, I64, U8, DType
from graphc.lowering.kernel.code import (
    Access,
    Apply,
    AxisIndex,
    Gemm,
    Load,
    Number,
    Parameter,
    Side,
    Statement,
    Store,
)

Numbers = np.random.Generator
DTYPES = [F32, BF16, F64, F16, I32, I64, U8]
LENGTHS = [(), (1,), (5,), (33,), (7, 2), (3, 1, 11), (600,), (1025,), (3, 400), (40, 5, 6), (0,)]
OTHERS = [(), (1,), (2,), (17,), (33,), (4, 5), (3, 1, 7), (50,)]
SLOW = 200  # threads meet so often in all blocks


def generated(seed: int) -> tuple[Gemm, list[Array]]:
    """A product, and memory for its parameters."""
    rng = np.random.default_rng(seed)
    dtype = DTYPES[seed % len(DTYPES)]
    batch = ((), (), (3,), (2, 2))[rng.integers(4)]
    rows, cols = (OTHERS[rng.integers(len(OTHERS))] for _ in range(2))
    inner = LENGTHS[rng.integers(len(LENGTHS))]
    if prod(batch) * (1 + prod(rows) // 16) * (1 + prod(cols) // 16) * prod(inner) > 16 * SLOW:
        inner = (35,)
    orders = [
        tuple(int(k) for k in rng.permutation(sum(map(len, groups)))) for groups in
        ((batch, rows, inner), (batch, inner, cols), (batch, rows, cols))
    ]  # fmt: skip
    product = contraction((batch, rows, inner, cols), dtype, *orders)
    left, right = (_turned(rng, product, x) for x in (product.left, product.right))
    if rng.random() < 0.2:  # one matrix for all of the batch
        right = replace(right, batch=(0,) * len(batch))
    product = _with_code(rng, replace(product, left=left, right=right), orders[2])
    if dtype in (BF16, F16) and rng.random() < 0.4:  # not rounded
        product = _unrounded(product)
    return product, _memory(rng, product)


def _turned(rng: Numbers, product: Gemm, side: Side) -> Side:
    """Some axes run backwards, and it does not begin where the memory begins."""
    offset, groups = int(rng.integers(3)), dict[str, Sizes]()
    for name in ("batch", "rows", "inner", "cols"):
        steps = list[int]()
        for n, step in zip(getattr(product, name), getattr(side, name), strict=True):
            back = n > 0 and rng.random() < 0.15
            offset += (n - 1) * step if back else 0
            steps.append(-step if back else step)
        groups[name] = tuple(steps)
    return replace(side, offset=offset, **groups)


def _with_code(rng: Numbers, product: Gemm, order: Sizes) -> Gemm:
    """The sums alone, or with a vector of the last axis, added up, or where an index is greater."""
    sizes = (*product.batch, *product.rows, *product.cols)
    dtype, there = product.dtype, Access(2, dense(sizes, order))
    kind = rng.integers(4) if sizes and product.dtype.kind == "f" else 0
    along = Access(3, (*(0,) * (len(sizes) - 1), 1))
    code: Sequence[Statement] = (Store(there, 0),)
    if kind == 1:
        code = (
            Load(1, along), Apply(2, "add", (0, 1), dtype), Apply(3, "tanh", (2,), dtype),
            Store(there, 3),
        )  # fmt: skip
    elif kind == 2:
        code = (Store(there, 0, add=True),)
    elif kind == 3 and product.rows and product.cols:
        code = (
            AxisIndex(1, len(product.batch) + len(product.rows) - 1), AxisIndex(2, len(sizes) - 1),
            Apply(3, "ge", (1, 2), BOOL), Number(4, -7.0, dtype),
            Apply(5, "select", (3, 0, 4), dtype), Store(there, 5),
        )  # fmt: skip
    return replace(product, params=(*product.params, Parameter(dtype)), code=tuple(code))


def _unrounded(product: Gemm) -> Gemm:
    """Operands of half precision, and all else in f32."""
    code = tuple(
        replace(x, dtype=F32) if isinstance(x, Apply | Number) and x.dtype != BOOL else x
        for x in product.code
    )
    params = [*product.params[:2], *(replace(x, dtype=F32) for x in product.params[2:])]
    return replace(product, params=tuple(params), dtype=F32, code=code)


def _memory(rng: Numbers, product: Gemm) -> list[Array]:
    sizes = (*product.batch, *product.rows, *product.cols)
    counts = [*(memory(product, k) for k in range(2)), max(1, prod(sizes)), max((1, *sizes))]
    return [_numbers(rng, n, x.dtype) for n, x in zip(counts, product.params, strict=True)]


def _numbers(rng: Numbers, n: int, dtype: DType) -> Array:
    """Of floats now and then tiny ones, whose products are subnormal."""
    if dtype.kind != "f":
        return rng.integers(0, 200, n).astype(dtype.numpy)
    tiny = 2.0 ** rng.integers(-70, -56, n) if rng.random() < 0.3 else 1.0
    return np.asarray(rng.standard_normal(n) * tiny).astype(dtype.numpy)
