"""Indices that cannot be out of range, whatever is fed: they are not checked.

What a program computes of constants, comparisons and counted indices lies between bounds that can
be computed too (interval arithmetic: Moore, Interval Analysis, 1966). A binary search, and what was
clipped, look up nothing outside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from graphc.ir.types import DType
from graphc.lowering.nodes.nodes import LoopNode, MapNode, Read, Version, is_checked
from graphc.lowering.nodes.values import Literals

Bounds: TypeAlias = tuple[int, int]  # the smallest and the largest value


def without_checks(
    nodes: Sequence[LoopNode], literals: Literals, bounds: dict[Version, Bounds]
) -> list[LoopNode]:
    """The nodes, of which those check nothing whose index is always in range.

    bounds: of values that earlier nodes have made; those of these are added
    """
    return [_without_check(node, literals, bounds) for node in nodes]


def _without_check(node: LoopNode, literals: Literals, bounds: dict[Version, Bounds]) -> LoopNode:
    if not isinstance(node, MapNode):
        return node
    if is_checked(node) and node.function != "within" and not node.known:
        found = _bounds_of(node.reads[1], literals, bounds)
        if found is not None and found[0] >= 0 and found[1] < node.limit:
            node = replace(node, known=True)
    made = _made(node, literals, bounds)
    if made is not None and _holds(node.dtype, made) and node.target is None and not node.adds:
        bounds[node.result] = made
    return node


def _bounds_of(read: Read, literals: Literals, bounds: Mapping[Version, Bounds]) -> Bounds | None:
    literal = literals.get(read.value.buffer)
    if literal is not None:
        return (int(literal), int(literal)) if read.dtype.kind in "iu" else None
    return bounds.get(read.value)


def _made(node: MapNode, literals: Literals, bounds: Mapping[Version, Bounds]) -> Bounds | None:
    """Between what the result of a node lies; None where this is not known."""
    if node.dtype.kind not in "iu":
        return None
    if node.function == "iota":
        return 0, max(node.shape[int(node.number)] - 1, 0)
    if node.function == "fill":
        return int(node.number), int(node.number)
    reads = node.reads[1:] if node.function == "select" else node.reads
    found = [_bounds_of(r, literals, bounds) for r in reads]
    match node.function, found:
        case "select", [(a, b), (c, d)]:
            return min(a, c), max(b, d)
        case "add", [(a, b), (c, d)]:
            return a + c, b + d
        case "sub", [(a, b), (c, d)]:
            return a - d, b - c
        case "copy" | "cast", [(a, b)]:
            return a, b
        case ("maximum" | "minimum") as function, _:
            return _clipped(function, node.dtype, found)
    return None


def _clipped(function: str, dtype: DType, found: Sequence[Bounds | None]) -> Bounds:
    """One bound is enough: nothing is larger than a minimum's."""
    lowest, highest = _range(dtype)
    pairs = [x or (lowest, highest) for x in found]
    choose = max if function == "maximum" else min
    return choose(a for a, _ in pairs), choose(b for _, b in pairs)


def _holds(dtype: DType, x: Bounds) -> bool:
    """Whether a dtype has all values between the bounds: sums do not wrap around."""
    lowest, highest = _range(dtype)
    return lowest <= x[0] and x[1] <= highest


def _range(dtype: DType) -> Bounds:
    bits = 8 * dtype.bytes
    return (
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dtype.kind == "i" else (0, (1 << bits) - 1)
    )


__all__ = ["without_checks"]
