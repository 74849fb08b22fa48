"""The values that nodes read and write, while instructions are turned into nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from graphc.ir.types import DType
from graphc.lowering.kernel.lowered import Home
from graphc.lowering.nodes.nodes import ContractNode, MapNode, Read, Version
from graphc.lowering.nodes.views import sight
from graphc.lowering.program.program import Buffer, Instruction, Kernel
from graphc.lowering.program.strides import MemoryLayout
from graphc.ops.source import Const


@dataclass(frozen=True)
class Inside:
    """A buffer is the entries from `start` on along dim `dim` of another, seen as of that shape.

    operand: which operand of the instruction that makes the other it is; it may be others, too
    """

    whole: int
    operand: int
    dim: int
    start: int
    shape: tuple[int, ...]


IndexSource: TypeAlias = tuple[Version, int]  # the first so many entries of a value, as indices


@dataclass
class ValueTable:
    """Buffers, the number of the last write to each, and what is seen through others.

    literals: scalar constants by buffer. whole: buffers that must be in memory as they are, since
    somebody else reads them. boxes: what is read, per dim, of buffers that are read by views only.
    seen_as: buffers that are views of others here; insides: such, of what is joined of them; begun:
    values of which some parts are written. once: buffers with one reader. later_turn: what
    accumulates over turns is added to, not set. home: where the instruction runs. links: of
    indices, the chains of equal ones, and where they are. chained: values
    that are zero but where such chains begin. exact: sums must not depend on what else a kernel
    does, or how many it makes. indices: constants that are indices along a dim, and what makes them
    """

    buffers: list[Buffer]
    literals: Mapping[int, float | int | bool]
    exact: bool = False
    later_turn: bool = False
    whole: frozenset[int] = frozenset()
    boxes: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    versions: dict[int, int] = field(default_factory=dict)
    seen_as: dict[int, Read] = field(default_factory=dict)
    insides: Mapping[int, Inside] = field(default_factory=dict)
    begun: dict[int, Version] = field(default_factory=dict)
    once: frozenset[int] = frozenset()
    made_by: dict[Version, ContractNode] = field(default_factory=dict)
    home: Home = ()
    links: dict[tuple[Home, IndexSource], Version] = field(default_factory=dict)
    chained: dict[Version, IndexSource] = field(default_factory=dict)
    indices: Mapping[int, Kernel] = field(default_factory=dict)

    def read(self, buffer: int) -> Read:
        """The present value of a buffer, through the layout of the view that it is."""
        b = self.buffers[buffer]
        if b.root in self.seen_as:
            return self._through(b, self.seen_as[b.root])
        value = Version(b.root, self.versions.get(b.root, 0))
        layout = MemoryLayout.dense(b.shape)
        if b.kind == "view":
            layout = MemoryLayout(b.shape, b.strides, b.offset // b.dtype.bytes)
        return Read(value, layout, b.dtype)

    def _through(self, b: Buffer, seen: Read) -> Read:
        """A view of what is itself seen as a view: the dims that it has, moved or cut."""
        if b.kind != "view":
            return seen
        found = sight(b, seen.layout.shape)
        assert found is not None, f"{b.name} does not move dims of what it is a view of"
        layout = MemoryLayout(b.shape, found.strides(seen.layout), found.offset(seen.layout))
        return Read(seen.value, layout, b.dtype)

    def wrote(self, buffer: int) -> Version:
        """The value after one more write."""
        self.versions[buffer] = self.versions.get(buffer, 0) + 1
        return Version(buffer, self.versions[buffer])

    def forget_links(self) -> None:
        """Forget what was computed in one turn of a loop: it does not exist in another one."""
        self.links.clear()
        self.chained.clear()

    def temporary(self, shape: tuple[int, ...], dtype: DType, like: int) -> int:
        """A new buffer of the arena."""
        name = f"{self.buffers[like].name}.part"
        self.buffers.append(Buffer(len(self.buffers), name, shape, dtype))
        return len(self.buffers) - 1

    def map(
        self, x: Instruction, function: str, reads: tuple[Read, ...], result: Version,
        target: MemoryLayout | None = None, **more: float,
    ) -> MapNode:  # fmt: skip
        b = self.buffers[result.buffer]
        shape = target.shape if target else b.shape
        return MapNode(shape, function, reads, result, b.dtype, x, target, **more)  # type: ignore[arg-type]


def literals_of(
    setup: Sequence[Instruction], buffers: Sequence[Buffer]
) -> dict[int, float | int | bool]:
    """Constants of one entry."""
    found = {}
    for x in setup:
        if isinstance(x, Kernel) and isinstance(x.op, Const):
            found[x.result] = x.op.run().item()
    return found
