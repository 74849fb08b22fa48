"""Nodes: the instructions of a program in the form of loop nests, over values.

A *value* is what one write leaves in a buffer; if a buffer is written again, as a variable is, it
holds another value. A node reads each operand through a layout: which element of the value belongs
to which entry of the node's domain. So views cost nothing, and need no node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from graphc.ir.types import DType
from graphc.lowering.kernel.code import ReductionKind
from graphc.lowering.kernel.lines import LineFunction
from graphc.lowering.program.program import Instruction, Kernel
from graphc.lowering.program.strides import MemoryLayout
from graphc.support.dataclass import dataclass

INDEXED = ("gather", "scatter", "within")  # functions that check an index
FEW = 8  # entries that hardly fill a vector


class Version(NamedTuple):
    """What write number `version` leaves in a buffer that is no view; 0 is what it began with."""

    buffer: int
    version: int = 0


@dataclass(frozen=True, slots=True)
class Read:
    """A value, as a node sees it: layout.shape is the domain, its elements are the value's."""

    value: Version
    layout: MemoryLayout
    dtype: DType


@dataclass(frozen=True, slots=True)
class MapNode:
    """`result[entry] = function(reads[entry])` for every entry of a domain.

    function: an elementwise op; 'copy'; 'sum' and 'tree' (of many, in their order); 'fill' with
              `number`; 'iota', the index along dim `number`; 'gather' (a table's row, at an
              index); 'within' (an index, checked); 'scatter' (added to a row); 'chain' and
              'chain:tree' (the sum over a chain of places, by its links); 'first_rows' and
              'every_row' (added to a row at an index, which links have checked: where chains begin,
              or everywhere, one after the other); 'guarded' (loaded where a condition, the second
              read, holds, else 0); 'uniform' and 'normal' (random numbers) of a 'stream' (its key
              `number`, and the step)
    target:   where in the result the entries go, if that is not all of it in row-major order
    limit:    of an index, or how many links there are; step: elements from row to row
    adds:     to what the result holds already; apart: no other node writes to the same target
    known:    its index was checked before: it is only kept inside the limit
    along:    of random numbers: how far their entry goes on along each dim, and by each of the
              indices that are read after the stream
    """

    shape: tuple[int, ...]
    function: str
    reads: tuple[Read, ...]
    result: Version
    dtype: DType
    instruction: Instruction
    target: MemoryLayout | None = None
    number: float | int | bool = 0
    limit: int = 0
    step: int = 0
    adds: bool = False
    apart: bool = False
    known: bool = False
    along: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())

    @property
    def serial(self) -> bool:
        """Whether entries must be processed in order, by one thread: two may go to one position."""
        return self.function in ("scatter", "every_row")

    @property
    def by_row(self) -> bool:
        """Whether entries are added to rows at an index, the second read."""
        return self.function in ("scatter", "first_rows", "every_row")

    @property
    def reads_anywhere(self) -> bool:
        """Whether the first read is of other entries than those that the layout says."""
        return self.function in ("gather", "chain", "chain:tree", "guarded")


@dataclass(frozen=True, slots=True)
class LinkNode:
    """`result[k]` = the next place that holds the index at place k; see
    graphc.lowering.kernel.code.IndexLinks.

    reads: the indices, in row-major order. Noted as an error is an index not in [0, limit).
    """

    shape: tuple[int, ...]
    reads: tuple[Read, ...]
    result: Version
    dtype: DType
    instruction: Instruction
    limit: int
    target: None = None


@dataclass(frozen=True, slots=True)
class LineNode:
    """`result` = a function of every line of what is read along a dim of the domain; see
    graphc.lowering.kernel.lines.LineKernel, also for `part`."""

    shape: tuple[int, ...]
    function: LineFunction
    dim: int
    reads: tuple[Read, ...]
    result: Version
    dtype: DType
    instruction: Instruction
    target: None = None
    part: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class ReduceNode:
    """`result` = the sum (largest, smallest) of what is read, over some dims of the domain."""

    shape: tuple[int, ...]
    over: tuple[int, ...]
    kind: ReductionKind
    reads: tuple[Read, ...]
    result: Version
    dtype: DType
    instruction: Instruction
    first: float | int | bool = 0
    target: None = None

    @property
    def goes_along(self) -> bool:
        """Whether it adds up neighbors, and enough of them to fill a vector.

        They are neighbors if no dim that it keeps comes after all that it folds.
        """
        kept = [d for d in range(len(self.shape)) if d not in self.over]
        last = self.over[-1]
        return not kept or (kept[-1] < last and self.shape[last] >= FEW)


@dataclass(frozen=True, slots=True)
class ContractNode:
    """`result = einsum(spec, left, right)`; shape is that of the result."""

    shape: tuple[int, ...]
    spec: str
    reads: tuple[Read, ...]
    result: Version
    dtype: DType
    instruction: Instruction
    target: None = None


LoopNode: TypeAlias = MapNode | LinkNode | LineNode | ReduceNode | ContractNode


def alive(nodes: Sequence[LoopNode], shared: set[int]) -> list[LoopNode]:
    """The nodes whose results are read."""
    read: set[Version] = set()
    kept = []
    for node in reversed(nodes):
        if node.result.buffer in shared or node.result in read:
            read |= {r.value for r in node.reads}
            kept.append(node)
    return kept[::-1]


def name_of(node: LoopNode) -> str:
    x = node.instruction
    return x.node if isinstance(x, Kernel) else "write"


def kind_of(node: LoopNode) -> str:
    """What a node computes, in a word: a function, a reduction over dims, an einsum."""
    match node:
        case MapNode(function=function):
            return function
        case ReduceNode(kind=kind, over=over):
            return f"{kind} over {','.join(map(str, over))} of"
        case ContractNode(spec=spec):
            return f"einsum {spec}"
        case LinkNode():
            return "links of"
        case LineNode(function=function, dim=dim):
            return f"{function} along {dim} of"


def is_checked(node: LoopNode) -> bool:
    """Whether a node notes an index that is out of range."""
    by_index = isinstance(node, MapNode) and node.function in INDEXED and not node.known
    return isinstance(node, LinkNode) or by_index
