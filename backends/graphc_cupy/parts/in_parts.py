"""Which kernels are launched in parts."""

from __future__ import annotations

from graphc.lowering.kernel.code import Gemm, LoopKernel, Nest, TiledKernel
from graphc_cupy.parts import column_blocks, long_rows, product_sums, tile_steps
from graphc_cupy.parts.launch_parts import LaunchPart, LaunchParts


def in_parts(kernel: LoopKernel) -> LaunchParts | None:
    """The parts of a kernel; None if it is launched as it is. Every bit is the same."""
    match kernel:
        case TiledKernel():
            return tile_steps.parts_of(kernel)
        case Gemm():
            return product_sums.parts_of(kernel)
        case Nest():
            return long_rows.parts_of(kernel) or column_blocks.parts_of(kernel)
        case _:
            return None


__all__ = ["LaunchPart", "LaunchParts", "in_parts"]
