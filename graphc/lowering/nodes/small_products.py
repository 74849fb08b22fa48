"""Products of many small batches, as sums of elementwise products.

A depthwise convolution multiplies each channel by itself: as a product, it has a batch of channels
and a single column, so that the tiles of a product would be empty except for that column. Here the
lanes of a vector are the channels, which are adjacent in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from graphc.lowering.nodes.nodes import ContractNode, LoopNode, ReduceNode
from graphc.lowering.nodes.reductions import in_parts
from graphc.lowering.nodes.values import ValueTable
from graphc.lowering.program.program import Kernel
from graphc.ops.contract import letter_sizes, parse_spec

LEAST = 8  # channels: half a vector
MANY = 64  # terms of a sum that is long: what they are read from is not in the nearest cache


@dataclass(frozen=True)
class _DimLetters:
    """The dims of a contraction: sizes, those that are added up, and those of the lanes."""

    sizes: dict[str, int]
    summed: str
    lanes: str  # the last letters of the result, from the one of the lanes on
    out: str

    @property
    def domain(self) -> str:
        """All dims, in the order of the loops.

        The first dim of a long sum comes first: each part of it is used for all results.
        """
        kept, summed = self.out.removesuffix(self.lanes), self.summed
        long = prod(self.sizes[x] for x in summed) > MANY
        first = summed[: int(long)]
        return first + kept + summed[len(first) :] + self.lanes


def entrywise(v: ValueTable, made: ContractNode) -> list[LoopNode]:
    """The nodes of a contraction: itself, or an elementwise product and its sum."""
    found = None if v.facts.exact or made.dtype.bytes < 4 else _letters(made)
    if found is None or not isinstance(made.instruction, Kernel):
        return [made]
    domain = found.domain
    shape = tuple(found.sizes[x] for x in domain)
    sides = parse_spec(made.spec)[:2]
    reads = tuple(
        replace(read, layout=read.layout.repeated(shape, tuple(map(domain.index, side))))
        for read, side in zip(made.reads, sides, strict=True)
    )
    over = tuple(d for d, x in enumerate(domain) if x in found.summed and shape[d] > 1)
    if not over:
        return [v.map(made.instruction, "mul", reads, made.result)]
    part = v.temporary(shape, made.dtype, made.result.buffer)
    product = v.map(made.instruction, "mul", reads, v.wrote(part))
    fold = ReduceNode(
        shape, over, "sum", (v.read(part),), made.result, made.dtype, made.instruction
    )
    return [product, *in_parts(v, fold)]


def _letters(made: ContractNode) -> _DimLetters | None:
    """The dims, where one side has no dim of its own and lanes can go along the batch."""
    left, right, out = parse_spec(made.spec)
    sizes = letter_sizes(made.spec, *(r.layout.shape for r in made.reads))
    own = [prod(sizes[x] for x in {*a} - {*b}) for a, b in ((left, right), (right, left))]
    summed = "".join(x for x in dict.fromkeys(left + right) if x not in out)
    lane = next((x for x in reversed(out) if sizes[x] > 1), None)
    if min(own) > 1 or lane is None:
        return None
    strides = [
        read.layout.strides[names.index(lane)] if lane in names else None
        for read, names in zip(made.reads, (left, right), strict=True)
    ]
    if strides != [1, 1] or sizes[lane] < LEAST:
        return None
    return _DimLetters(sizes, summed, out[out.rindex(lane) :], out)
