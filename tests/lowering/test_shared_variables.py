"""What devices read of each other is made before, by a kernel of its own."""

from __future__ import annotations

from typing import Any

from graphc.ir.types import F32
from graphc.lowering.fusion.fuse import Fusion
from graphc.lowering.nodes.nodes import MapNode, Read, Version
from graphc.lowering.program.strides import MemoryLayout

SHAPE = (6,)
PEER, HOME = 9, 1  # a buffer in another device's memory, and the one of this device


def neg(result: Version, *reads: Version) -> MapNode:
    whole = MemoryLayout.dense(SHAPE)
    instruction: Any = None
    return MapNode(
        SHAPE, "neg", tuple(Read(v, whole, F32) for v in reads), result, F32, instruction
    )  # fmt: skip


def groups(*nodes: MapNode) -> list[list[int]]:
    return [g.nodes for g in Fusion(nodes, homes={PEER: HOME}, away={PEER}).ordered()]


def test_a_sum_does_not_join_what_makes_its_operand() -> None:
    made, other = neg(Version(HOME, 1), Version(0)), neg(Version(2, 1), Version(HOME, 1))
    read = neg(Version(3, 1), Version(PEER), Version(2, 1))
    assert groups(made, other) == [[0, 1]]
    assert groups(made, other, read) == [[0, 1], [2]]


def test_what_needs_other_devices_comes_last() -> None:
    made, read = neg(Version(HOME, 1), Version(0)), neg(Version(3, 1), Version(PEER))
    alone = neg(Version(4, 1), Version(5))
    assert groups(made, read, alone) == [[0], [2], [1]]


def test_what_others_read_is_overwritten_after_they_have() -> None:
    read, over = neg(Version(3, 1), Version(PEER)), neg(Version(HOME, 1), Version(0))
    assert groups(read, over) == [[0], [1]]
