"""One kernel on a GPU, called with NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from graphc_cupy.library import Gpu, Launched, kernels_on
from graphc_cupy.memory import DeviceBlock
from graphc_cupy.ptx.joined import Launchable

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Run: TypeAlias = Callable[[Launchable, Sequence[Array]], Array]
CHECKS = 64  # of a kernel, at most


class KernelsOnGpu:
    """Runs kernels on a GPU; those that are given here are assembled together."""

    def __init__(self, gpu: Gpu, kernels: Sequence[Launchable] = ()) -> None:
        self._gpu, self._stream = gpu, gpu.cuda.Stream(non_blocking=True)
        self._loaded = kernels_on(gpu, kernels) if kernels else {}

    def __call__(self, kernel: Launchable, arrays: Sequence[Array]) -> Array:
        """Run a kernel; the arrays are changed in place. What its checks have noted, a row each."""
        if kernel not in self._loaded:
            self._loaded |= kernels_on(self._gpu, [kernel])
        blocks: dict[int, DeviceBlock] = {}  # arrays that are one stay one
        for x in arrays:
            if x.ctypes.data not in blocks:
                blocks[x.ctypes.data] = self._block(x)
        noted = np.zeros((CHECKS, 2), np.int64)
        errors = self._block(noted)
        self._launch(self._loaded[kernel], [blocks[x.ctypes.data] for x in arrays], errors)
        for x, param in zip(arrays, kernel.params, strict=True):
            if param.written:
                blocks[x.ctypes.data].take(self._stream, x)
        errors.take(self._stream, noted)
        return noted

    def _block(self, x: Array) -> DeviceBlock:
        block = DeviceBlock(self._gpu.cuda, max(x.nbytes, 1))
        block.put(self._stream, x)
        return block

    def _launch(self, kernel: Launched, blocks: Sequence[DeviceBlock], errors: DeviceBlock) -> None:
        own = DeviceBlock(self._gpu.cuda, max(kernel.own, 256))
        if kernel.blocks:
            addresses = [x.address for x in blocks]
            kernel.launch(addresses, own.address, errors.address, 0, self._stream)
        self._stream.synchronize()  # its own memory is used until then
