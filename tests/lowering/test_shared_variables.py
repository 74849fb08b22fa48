"""What devices read of each other is made before, by a kernel of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from graphc.ir.types import F32
from graphc.lowering.fusion.fuse import Fusion
from graphc.lowering.kernel.positions import PositionNumber
from graphc.lowering.nodes.nodes import MapNode, Read, Version
from graphc.lowering.nodes.section_table import Section, SectionTable
from graphc.lowering.program.program import Range
from graphc.lowering.program.strides import MemoryLayout

SHAPE = (6,)
HOME, PEER, OWN_PART, OTHER_PART = 1, 9, 10, 11
OFFSET, TURN = (
    PositionNumber("offset", range=Range(12, axes=(("data", 2),))),
    PositionNumber("turn"),
)


def section(axes: tuple[str, ...] = (), shift: PositionNumber | None = None) -> Section:
    return Section(HOME, axes, 1, ((shift, 6),) if shift else ())


def neg(result: Version, *reads: Version) -> MapNode:
    whole = MemoryLayout.dense(SHAPE)
    instruction: Any = None
    return MapNode(
        SHAPE, "neg", tuple(Read(v, whole, F32) for v in reads), result, F32, instruction
    )  # fmt: skip


def part(result: Version, *reads: Version) -> MapNode:
    return replace(neg(result, *reads), target=MemoryLayout.dense(SHAPE))


def groups(*nodes: MapNode, **wholes: int) -> list[list[int]]:
    """wholes: of which version of the home buffer each section is, if not of the first"""
    sections = {
        PEER: section(("data",)),
        OWN_PART: section(shift=OFFSET),
        OTHER_PART: section(shift=TURN),
    }
    names = {"peer": PEER, "own": OWN_PART, "other": OTHER_PART}
    of = {b: Version(HOME, wholes.get(name, 0)) for name, b in names.items()}
    return [
        g.nodes
        for g in Fusion(nodes, sections=SectionTable(sections, of, frozenset({HOME}))).ordered()
    ]


def test_a_sum_does_not_join_what_makes_its_operand() -> None:
    made, other = neg(Version(HOME, 1), Version(0)), neg(Version(2, 1), Version(HOME, 1))
    read = neg(Version(3, 1), Version(PEER), Version(2, 1))
    assert groups(made, other) == [[0, 1]]
    assert groups(made, other, read, peer=1) == [[0, 1], [2]]


def test_what_needs_other_devices_comes_last() -> None:
    made, read = neg(Version(HOME, 1), Version(0)), neg(Version(3, 1), Version(PEER))
    alone = neg(Version(4, 1), Version(5))
    assert groups(made, read, alone, peer=1) == [[0], [2], [1]]


def test_what_others_read_is_overwritten_after_they_have() -> None:
    read, over = neg(Version(3, 1), Version(PEER)), neg(Version(HOME, 1), Version(0))
    assert groups(read, over) == [[0], [1]]


@pytest.mark.parametrize("source", [HOME, PEER, OTHER_PART])
def test_a_part_is_written_after_the_whole_was_read(source: int) -> None:
    """As the other devices write theirs, which is read too."""
    read = neg(Version(3, 1), Version(source))
    over = part(Version(OWN_PART, 1), Version(3, 1))
    assert groups(read, over, own=1) == [[0], [1]]


@pytest.mark.parametrize("source", [HOME, PEER, OTHER_PART])
def test_a_part_is_written_before_the_whole_is_read_again(source: int) -> None:
    over, more = part(Version(OWN_PART, 1), Version(0)), neg(Version(3, 1), Version(0))
    value = Version(HOME, 1) if source == HOME else Version(source)
    read = neg(Version(4, 1), value, Version(3, 1))
    assert groups(over, more, read, own=1, peer=1, other=1) == [[0], [1, 2]]


def test_a_device_may_write_over_the_part_that_it_has_read() -> None:
    read = neg(Version(3, 1), Version(12))
    over = part(Version(OWN_PART, 1), Version(3, 1))
    sections = {b: section(shift=OFFSET) for b in (OWN_PART, 12)}
    of = {OWN_PART: Version(HOME, 1), 12: Version(HOME)}
    found = Fusion([read, over], sections=SectionTable(sections, of, frozenset({HOME}))).ordered()
    assert [g.nodes for g in found] == [[0, 1]]


@pytest.mark.parametrize("same_layout", [True, False])
def test_who_writes_for_all_devices_reads_only_the_entries_that_it_overwrites(
    same_layout: bool,
) -> None:
    """Another thread may have overwritten the others."""
    sections = {b: Section(HOME, ("data",), b % 2) for b in (20, 21, 30, 31)}
    of = {b: Version(HOME, b // 30) for b in sections}
    read = neg(Version(3, 1), Version(20), Version(21))
    if not same_layout:
        backwards = replace(read.reads[1], layout=MemoryLayout(SHAPE, (-1,), 5))
        read = replace(read, reads=(read.reads[0], backwards))
    over = [replace(part(Version(b, 1), Version(3, 1)), apart=True) for b in (30, 31)]
    found = Fusion([read, *over], sections=SectionTable(sections, of)).ordered()
    assert [g.nodes for g in found] == ([[0, 1, 2]] if same_layout else [[0], [1], [2]])
