"""`cupy.cuda` as one of several GPUs sees it: what is made through it lies on that GPU.

CUDA keeps a current GPU for each thread, and makes memory, streams and events there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class CudaOfGpu:
    """every: `cupy.cuda`; number: of the GPU, as CUDA counts those that this process sees
    nccl: cupy's module of NCCL, whose library is loaded when it is asked for
    """

    def __init__(self, cuda: Any, number: int, nccl: Callable[[], Any]) -> None:
        self.every, self.number, self.nccl = cuda, number, nccl

    @property
    def runtime(self) -> Any:
        return self.every.runtime

    @property
    def driver(self) -> Any:
        return self.every.driver

    @property
    def identity(self) -> str:
        """The same for two processes only if it is the same GPU, or one of another host."""
        return str(self.runtime.deviceGetPCIBusId(self.number))

    def here(self) -> Any:
        """A context in which the GPU is this thread's current one, as launches need it."""
        return self.every.Device(self.number)

    def alloc(self, size: int) -> Any:
        with self.here():
            return self.every.alloc(size)

    def alloc_pinned_memory(self, size: int) -> Any:
        with self.here():
            return self.every.alloc_pinned_memory(size)

    def Stream(self, *, non_blocking: bool) -> Any:
        with self.here():
            return self.every.Stream(non_blocking=non_blocking)

    def Event(self, *, disable_timing: bool = False) -> Any:
        """disable_timing: it is not for measuring times, which makes it cheaper."""
        with self.here():
            return self.every.Event(disable_timing=disable_timing)

    def Module(self) -> Any:
        """A module; it is loaded, too, where the GPU is the current one."""
        return self.every.Module()
