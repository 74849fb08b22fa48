"""Memory of a GPU: blocks, what goes there before a step, and what programs share."""

from __future__ import annotations

import ctypes
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import field
from typing import Any, TypeAlias

import numpy as np
from graphc_numpy.memory import Bytes
from numpy.typing import NDArray

from graphc.lowering.memory.arena import aligned
from graphc.lowering.target import GPU
from graphc.support.dataclass import dataclass
from graphc.support.errors import GraphcError
from graphc.support.units import size_text

Array: TypeAlias = NDArray[Any]


class DeviceBlock:
    """So many bytes of the GPU's memory. cuda: `cupy.cuda`, or what stands for it

    Raises G0204 if the GPU has no room for it.
    """

    def __init__(self, cuda: Any, size: int) -> None:
        self.size, self._runtime = size, cuda.runtime
        try:
            self._pointer = cuda.alloc(size) if size else None
        except MemoryError:
            raise GraphcError(
                "G0204", f"the GPU has no room for {size_text(size)} more",
                help="end what else runs on it; or take smaller batches, or more microbatches: "
                "accumulate(2)",
            ) from None  # fmt: skip

    @property
    def address(self) -> int:
        """Where it begins; 0 for no bytes."""
        return int(self._pointer.ptr) if self._pointer is not None else 0

    def at(self, offset: int) -> Any:
        """cupy's pointer to a byte of it."""
        assert self._pointer is not None and offset < self.size
        return self._pointer + offset

    def put(self, stream: Any, values: Array, offset: int = 0) -> None:
        """Copy an array here, and wait until it has arrived, as it may be ordinary memory."""
        if values.nbytes:
            assert values.flags.c_contiguous
            self.bring(stream, values.ctypes.data, values.nbytes, offset)
            stream.synchronize()

    def take(self, stream: Any, values: Array, offset: int = 0) -> None:
        """Copy bytes from here into an array, and wait until they have arrived."""
        if values.nbytes:
            assert values.flags.c_contiguous
            self.fetch(stream, values.ctypes.data, values.nbytes, offset)
            stream.synchronize()

    # cupy's own methods for the next two refuse a stream that is captured, so CUDA is called.

    def bring(self, stream: Any, start: int, size: int, offset: int) -> None:
        """Let a stream copy bytes here, to byte `offset`, from an address of the host."""
        assert offset + size <= self.size
        kind = self._runtime.memcpyHostToDevice
        self._runtime.memcpyAsync(self.address + offset, start, size, kind, stream.ptr)

    def fetch(self, stream: Any, to: int, size: int, offset: int) -> None:
        """Let a stream copy bytes from byte `offset` to an address of the host."""
        assert offset + size <= self.size
        kind = self._runtime.memcpyDeviceToHost
        self._runtime.memcpyAsync(to, self.address + offset, size, kind, stream.ptr)


Place: TypeAlias = tuple[DeviceBlock, int]  # a block, and a byte of it


def address(place: Place) -> int:
    """The address of a byte of a block."""
    block, offset = place
    return block.address + offset


class PinnedBlock:
    """So many bytes of the host's memory that the GPU copies from and to by itself."""

    def __init__(self, cuda: Any, size: int) -> None:
        self._memory = cuda.alloc_pinned_memory(max(size, 1))
        kind: Any = ctypes.c_uint8 * size
        self.bytes: Bytes = np.frombuffer(kind.from_address(int(self._memory.ptr)), np.uint8)

    @property
    def address(self) -> int:
        return int(self._memory.ptr)


@dataclass
class BlockLayout:
    """Pieces that lie in one block, one after the other, by a name. size: bytes of all"""

    offsets: dict[Hashable, int] = field(default_factory=dict)
    size: int = 0

    @classmethod
    def of(cls, sizes: Iterable[tuple[Hashable, int]]) -> BlockLayout:
        layout = cls()
        for name, size in sizes:
            layout.offsets[name] = layout.size
            layout.size += aligned(size, GPU.align)
        return layout


@dataclass
class SharedSizes:
    """Blocks that programs use in turn: the last one, and one more where that is too small.

    A program keeps the block that it began with, as its CUDA graphs know the addresses.
    """

    sizes: list[int] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Bytes of all blocks."""
        return sum(self.sizes)

    def take(self, size: int) -> int:
        """The number of the block that a program uses which needs so many bytes."""
        if not self.sizes or size > self.sizes[-1]:
            self.sizes.append(size)
        return len(self.sizes) - 1


class SharedMemory:
    """The memory behind `SharedSizes`."""

    def __init__(self, cuda: Any) -> None:
        self._cuda, self._sizes, self._blocks = cuda, SharedSizes(), list[DeviceBlock]()

    @property
    def total(self) -> int:
        return self._sizes.total

    def take(self, size: int) -> DeviceBlock:
        """The block that a program uses which needs so many bytes."""
        number = self._sizes.take(size)
        if number == len(self._blocks):
            self._blocks.append(DeviceBlock(self._cuda, size))
        return self._blocks[number]


class Staging:
    """What goes to the GPU before a step: one pinned block, and one there that looks the same.

    So one copy is enough for a whole step. begin: where the block of the GPU begins in `block`
    """

    def __init__(self, cuda: Any, layout: BlockLayout, block: DeviceBlock, begin: int) -> None:
        self._layout, self._block, self._begin = layout, block, begin
        self._pinned = PinnedBlock(cuda, layout.size)

    def place(self, name: Hashable) -> Place:
        """Where a piece lies on the GPU."""
        return self._block, self._begin + self._layout.offsets[name]

    def array(self, name: Hashable, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """A piece in pinned memory."""
        start = self._layout.offsets[name]
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return self._pinned.bytes[start : start + size].view(dtype).reshape(shape)

    def copy(self, stream: Any) -> None:
        """Bring all pieces to the GPU."""
        self._copied(stream, 0, self._layout.size)

    def copy_one(self, stream: Any, name: Hashable, size: int) -> None:
        """Bring one piece of so many bytes to the GPU."""
        self._copied(stream, self._layout.offsets[name], size)

    def _copied(self, stream: Any, start: int, size: int) -> None:
        if size:
            self._block.bring(stream, self._pinned.address + start, size, self._begin + start)


class Results:
    """What comes back from the GPU behind a step, in pinned memory.

    sources: by name, the GPU's block, the first byte there, and how many bytes
    """

    def __init__(self, cuda: Any, sources: Mapping[Hashable, tuple[DeviceBlock, int, int]]) -> None:
        self._sources = {name: x for name, x in sources.items() if x[2]}
        self._layout = BlockLayout.of((name, size) for name, (_, _, size) in sources.items())
        self._pinned = PinnedBlock(cuda, self._layout.size)

    def bytes(self, name: Hashable) -> Bytes:
        """What has come, once the stream was synchronized."""
        start = self._layout.offsets[name]
        size = self._sources[name][2] if name in self._sources else 0
        return self._pinned.bytes[start : start + size]

    def copy(self, stream: Any) -> None:
        """Bring everything to the host."""
        for name, (block, start, size) in self._sources.items():
            to = self._pinned.address + self._layout.offsets[name]
            block.fetch(stream, to, size, start)
