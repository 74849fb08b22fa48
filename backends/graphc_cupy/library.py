"""Kernels on a GPU: printed as PTX, assembled, and loaded as functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from graphc.lowering import target as targets
from graphc.lowering.kernel.code import Gemm, LoopKernel
from graphc.lowering.target import LoweringTarget
from graphc.support.dataclass import dataclass
from graphc_cupy.cublas import Cublas, LibraryProduct


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """A kernel on the GPU, and how it is launched.

    function: cupy's; it takes the pointers that `launch` is given
    blocks:   of so many threads; 0: there is nothing to do
    shared:   bytes of fast memory that the threads of a block share
    own:      bytes of memory of its own, of all blocks
    """

    function: Any
    blocks: int
    threads: int
    shared: int
    own: int

    def launch(
        self, params: Sequence[int], own: int, errors: int, failed: int, stream: Any
    ) -> None:
        """Give it to a stream. All but the stream are addresses: of what parameters point to, of
        memory of its own, of the words in which checks note errors, and of the word that keeps it
        from running where that is not 0 (0: nothing does)"""
        arguments = (*params, own, errors, failed)
        self.function((self.blocks,), (self.threads,), arguments, self.shared, stream=stream)


Loader: TypeAlias = Callable[[Sequence[LoopKernel]], list[LoadedKernel]]
Launched: TypeAlias = LoadedKernel | LibraryProduct


@dataclass(frozen=True)
class Gpu:
    """A GPU.

    cuda: `cupy.cuda`, or what stands for it in tests; load: makes functions of kernels
    memory: the bytes that it has; target: what is lowered for it; cublas: None if it is not there
    """

    cuda: Any
    load: Loader
    memory: int
    target: LoweringTarget = targets.GPU
    cublas: Cublas | None = None


def kernels_on(gpu: Gpu, kernels: Sequence[LoopKernel]) -> dict[LoopKernel, Launched]:
    """Each distinct kernel, loaded; or for cuBLAS, if it is a product of the library's."""
    distinct, found = dict.fromkeys(kernels), dict[LoopKernel, Launched]()
    for kernel in distinct:
        if gpu.cublas is not None and isinstance(kernel, Gemm) and kernel.library:
            found[kernel] = gpu.cublas.loaded(kernel)
    ours = [kernel for kernel in distinct if kernel not in found]
    return found | (dict(zip(ours, gpu.load(ours), strict=True)) if ours else {})
