"""Kernels in blocks of rows for GPUs, run by this processor, give the bits of the native backend's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("llvmlite")

from backends.cupy.kernels_of_programs import memory_of
from backends.cupy.on_cpu import POSSIBLE, host_machine, run_on_cpu
from backends.native.harness import run_kernel
from graphc_cupy.ptx import tiled
from lowering.attention import attention
from lowering.compiled import kernels_of, program_of
from lowering.structures import RANDOM
from shares import dealt

from graphc.lowering import target
from graphc.lowering.kernel.code import TiledKernel

pytestmark = pytest.mark.skipif(not POSSIBLE, reason="threads of blocks are played on Linux only")
BF16 = np.dtype(ml_dtypes.bfloat16)
SHAPES: list[tuple[Any, ...]] = [
    (1, 2, 9, 4), (2, 1, 5, 8, BF16, True), (1, 2, 6, 3, np.float64, False),
    (2, 1, 40, 8, np.float32, True, 17), (2, 3, 11, 4, np.float16, False), (2, 1, 17, 4),
    (2, 2, 24, 8, BF16, True),
]  # fmt: skip


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small values are worth a tiling, too, and tiles are small."""
    monkeypatch.setattr(target, "CPU", replace(target.CPU, tiled=1, cache=1, tile_rows=4))


def check(kernel: TiledKernel) -> None:
    """A kernel for a GPU and the CPU's leave the same bits in all memory."""
    mine, wanted = memory_of(kernel), memory_of(kernel)
    run_on_cpu(kernel, mine)
    run_kernel(kernel, wanted)
    for x, y in zip(mine, wanted, strict=True):
        assert x.tobytes() == y.tobytes(), f"{x}\nnot\n{y}"


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("shape", dealt(SHAPES, 1, 1), ids=str)
def test_attention_in_tiles_has_the_bits_of_the_cpu(shape: tuple[Any, ...]) -> None:
    kernels = kernels_of(program_of(*attention(*shape)))
    found = [k for k in dict.fromkeys(kernels) if isinstance(k, TiledKernel)]
    assert found
    for kernel in found:
        check(kernel)


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_scores_that_are_dropped_have_the_bits_of_the_cpu() -> None:
    x = RANDOM["dropout of scores"]
    found = [
        k for k in kernels_of(program_of(x.loss, x.params, x.batch)) if isinstance(k, TiledKernel)
    ]
    assert found
    for kernel in found:
        check(kernel)


def test_blocks_have_no_more_memory_than_those_that_a_launch_needs() -> None:
    machine = host_machine()
    for units, blocks in ((7, 7), (512, 512), (513, 257), (40_000, 507)):
        kernel = TiledKernel((), (units,), 3, 1, (), 5000, ordered=True)
        assert tiled.units(kernel) == units
        assert -(-units // tiled.grain(kernel, machine)) == blocks
        assert tiled.own_bytes(kernel) == 5120
