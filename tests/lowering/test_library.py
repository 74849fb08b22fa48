"""Products that are taken apart from the code on their results, for a library of products."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from backends.cupy.generated_products import generated
from backends.cupy.kernels_of_programs import memory_of
from backends.native.harness import run_kernel
from backends.native.test_products import Array, Groups, contraction
from shares import every

from graphc.ir.types import BF16, F16, F32, F64, DType
from graphc.lowering.kernel.axes import sizes
from graphc.lowering.kernel.blas_form import blas_form
from graphc.lowering.kernel.code import Access, Apply, Gemm, Load, Nest, Parameter, Store
from graphc.lowering.library import _parts, choice
from graphc.lowering.target import CPU, GPU


def with_bias(product: Gemm) -> Gemm:
    """The product plus a row, from a parameter behind the others."""
    k, axes = len(product.params), len(sizes(product))
    (store,) = product.code
    assert isinstance(store, Store)
    code = (
        Load(1, Access(k, (*(0,) * (axes - 1), 1))), Apply(2, "add", (0, 1), product.dtype),
        replace(store, source=2),
    )  # fmt: skip
    return replace(product, params=(*product.params, Parameter(product.dtype)), code=code)


@pytest.mark.parametrize("dtype", [F32, F64, F16, BF16], ids=str)
@pytest.mark.parametrize("groups", [((), (5,), (70,), (33,)), ((2,), (9,), (17,), (3,))], ids=str)
def test_the_parts_of_a_product_with_code_have_its_bits(groups: Groups, dtype: DType) -> None:
    product = with_bias(contraction(groups, dtype))
    arrays = [
        x.astype(p.dtype.numpy) for x, p in zip(memory_of(product), product.params, strict=True)
    ]
    check_bits(product, arrays)


# Of the first 300 generated products, those that a library knows.
KNOWN = (2, 9, 43, 44, 51, 72, 80, 84, 87, 94, 108, 114, 115, 120, 121, 122, 135, 136, 142, 148)


@pytest.mark.parametrize("seed", every(5, KNOWN))
def test_the_parts_of_a_product_that_is_only_stored_have_its_bits(seed: int) -> None:
    check_bits(*generated(seed))


def check_bits(product: Gemm, arrays: list[Array]) -> None:
    """Of kernels of ours."""
    wanted, found = [x.copy() for x in arrays], [x.copy() for x in arrays]
    scratch = np.full(int(np.prod(sizes(product))), np.nan).astype(product.dtype.numpy)
    run_kernel(product, wanted)
    memory = [*found, scratch]
    parts = _parts(product, apart=True)
    for part in parts:
        run_kernel(part.kernel, [memory[k] for k in part.slots])
    assert [type(x.kernel) for x in parts] == [Gemm, Nest]
    for x, y in zip(found, wanted, strict=True):
        assert x.tobytes() == y.tobytes()


def test_each_part_has_the_parameters_that_it_uses() -> None:
    product = with_bias(contraction(((), (4,), (5,), (6,))))
    bare, after = _parts(product, apart=False)
    assert bare.slots == (0, 1, 4) and after.slots == (2, 3, 4)
    assert isinstance(bare.kernel, Gemm) and bare.kernel.library
    form = blas_form(bare.kernel)
    assert form is not None and not form.scratch
    assert [p.written for p in bare.kernel.params] == [False, False, True]
    assert [p.written for p in after.kernel.params] == [True, False, False]


def test_a_store_needs_no_part_behind_it() -> None:
    product = contraction(((), (4,), (5,), (6,)))
    (only,) = _parts(product, apart=False)
    assert only.kernel == replace(product, library=True)


def test_a_choice_is_told_with_its_reason() -> None:
    product = contraction(((), (64,), (128,), (256,)))
    assert choice(product, GPU, exact=False).library
    assert not choice(product, CPU, exact=False).library
    few = choice(product, replace(GPU, library=1 << 30), exact=False)
    assert not few.library and few.reason == "2,097,152 multiplications a launch, too few for it"
    fixed = choice(product, GPU, exact=True)
    assert not fixed.library and "under reproducible" in fixed.reason
    assert choice(with_bias(product), GPU, exact=False).reason.startswith("1,048,576 ")
    odd = replace(product, left=replace(product.left, rows=(0,)))
    assert choice(odd, GPU, exact=False).reason == "the library knows no such product"
