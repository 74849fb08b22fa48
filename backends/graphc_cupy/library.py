"""Kernels on a GPU: printed as PTX, assembled, and loaded as functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from graphc.lowering.kernel.code import LoopKernel


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """A kernel on the GPU, and how it is launched.

    function: cupy's; it takes a pointer for each parameter, one to memory of its own, and one to
              the words in which checks note errors
    blocks:   of so many threads; 0: there is nothing to do
    shared:   bytes of fast memory that the threads of a block share
    own:      bytes of memory of its own, of all blocks
    """

    function: Any
    blocks: int
    threads: int
    shared: int
    own: int


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
