"""Kernels on a GPU: printed as PTX, assembled, and loaded as functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from graphc.lowering.kernel.code import LoopKernel


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


@dataclass(frozen=True)
class Gpu:
    """A GPU.

    cuda: `cupy.cuda`, or what stands for it in tests; load: makes functions of kernels
    memory: the bytes that it has
    """

    cuda: Any
    load: Loader
    memory: int


def kernels_on(gpu: Gpu, kernels: Sequence[LoopKernel]) -> dict[LoopKernel, LoadedKernel]:
    """Each distinct kernel, loaded."""
    distinct = list(dict.fromkeys(kernels))
    return dict(zip(distinct, gpu.load(distinct), strict=True)) if distinct else {}
