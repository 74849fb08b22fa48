"""Products by cuBLAS on a GPU, against our own kernels there; and what runs around them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from backends.cupy.kernels_of_programs import memory_of
from backends.cupy.steps import batch, engine, plan
from backends.native.test_products import Array, contraction
from gpu.rows import row
from graphc_cupy import CupyBackend
from graphc_cupy.library import Gpu, kernels_on
from graphc_cupy.memory import DeviceBlock

from graphc.ir.types import BF16, F16, F32, F64, DType
from graphc.lowering.kernel.code import Gemm
from graphc.runtime.backends.backend import Backend
from graphc.runtime.trainer import Trainer

pytestmark = pytest.mark.gpu
SLACK = 1_000_000  # nanoseconds by which the clocks of GPU and host may be apart
GROUPS = [((), (256,), (512,), (128,)), ((6,), (64,), (96,), (80,))]


def made(gpu: Gpu, product: Gemm, arrays: list[Array]) -> Array:
    """What lies behind the last parameter after a product."""
    loaded = kernels_on(gpu, [product])[product]
    stream = gpu.cuda.Stream(non_blocking=True)
    blocks = [DeviceBlock(gpu.cuda, x.nbytes) for x in arrays]
    own = DeviceBlock(gpu.cuda, max(loaded.own, 256))
    for x, block in zip(arrays, blocks, strict=True):
        block.put(stream, x)
    loaded.launch([x.address for x in blocks], own.address, 0, 0, stream)
    found = np.empty_like(arrays[-1])
    blocks[-1].take(stream, found)
    return found


@pytest.mark.parametrize("dtype", [F32, F64, F16, BF16], ids=str)
@pytest.mark.parametrize("groups", GROUPS, ids=["one", "batch"])
def test_a_product_by_cublas_is_ours_up_to_rounding(
    groups: tuple[tuple[int, ...], ...], dtype: DType, cupy_backend: Backend
) -> None:
    assert isinstance(cupy_backend, CupyBackend)
    gpu = cupy_backend.gpu()
    if gpu.cublas is None:
        row(f"cuBLAS, {dtype}", "NOT RUN: it is not installed")
        pytest.skip("cuBLAS is not installed")
    product = contraction(groups, dtype)
    arrays = [
        x.astype(p.dtype.numpy) for x, p in zip(memory_of(product), product.params, strict=True)
    ]
    ours = made(gpu, product, arrays).astype(np.float64)
    found = made(gpu, replace(product, library=True), arrays).astype(np.float64)
    far = float(np.abs(found - ours).max() / np.abs(ours).max())
    row(f"cuBLAS, {dtype}, {'x'.join(str(n) for g in groups for n in g)}", f"differs by {far:.1e}")
    assert far < {F64: 1e-12, F32: 1e-4}.get(dtype, 2e-2)


def test_steps_that_nobody_waits_for_have_the_same_bits(cupy_backend: Backend) -> None:
    with engine("mirrored(2)", cupy_backend) as made, engine("mirrored(2)", cupy_backend) as other:
        for each in (made, other):
            each.step(batch())
        path = made.fast_path("train", ("x", "y"))
        assert path is not None
        found = [path.step(batch(256, k)) for k in range(6)]
        wanted = [other.step(batch(256, k)) for k in range(6)]
        assert [(x or {})["loss"] for x in found] == [x["loss"].item() for x in wanted]
        after = other.variables()
        same = all(np.array_equal(x, after[n]) for n, x in made.variables().items())
    row("digits, steps that nobody waits for", "the same bits" if same else "OTHER BITS")
    assert same


def test_a_profile_tells_when_kernels_ran(cupy_backend: Backend) -> None:
    with Trainer(plan("mirrored(2)"), cupy_backend) as trainer:
        found = trainer.profile([batch(), batch(256, 1)], steps=3)
    first = found.rows("kernel")[0]
    row("graphc profile, the longest kernel", f"{first.label.split()[0]}, {first.share:.0%}")
    for step in found.steps:
        for events in step.events.values():
            assert all(step.begin <= e.came <= e.ended <= step.end + SLACK for e in events)
