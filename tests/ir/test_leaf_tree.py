"""The fixed tree: however its leaves are dealt out, and whichever are absent, it is the same sum."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.ir.leaf_tree import (
    GrowingSum,
    carries,
    forests,
    joins,
    most_pieces,
    most_sent,
    pieces,
    tree_total,
)
from graphc.ir.placement import Axis, Leaves, Mesh, Placement, Split, is_uneven, local_shape
from graphc.ir.types import F32, Extent, TensorType
from graphc.lowering.program.program import ranges_of
from graphc.ops.settle import grow

DEALS = [(slots, n) for slots in (1, 2, 3, 7, 8, 13, 32) for n in (1, 2, 3, 5, 7, 8) if n <= slots]


def tree(leaves: list[str | None]) -> str:
    """The balanced tree as a text; what is absent is left out."""
    row = leaves
    while len(row) > 1:
        row += [None] * (len(row) % 2)
        row = [a if b is None else f"({a}{b})" for a, b in zip(row[::2], row[1::2], strict=True)]
    assert row[0] is not None
    return row[0]


def names(count: int) -> list[str | None]:
    return [chr(ord("A") + i) for i in range(count)]


def test_pieces_are_the_largest_complete_ones() -> None:
    assert pieces(0, 13) == [(3, 0), (2, 8), (0, 12)]
    assert pieces(11, 22) == [(0, 11), (2, 12), (2, 16), (1, 20)]
    assert pieces(4, 4) == [] == pieces(9, 4)


@pytest.mark.parametrize(("slots", "devices"), DEALS)
def test_any_deal_gives_the_tree_over_the_leaves_that_are_present(slots: int, devices: int) -> None:
    each = -(-slots // devices)
    for present in range(1, slots + 1):
        held: list[str] = []
        for first in range(0, devices * each, each):
            forest: list[str] = []
            for leaf in range(first, min(first + each, present)):
                forest.append(chr(ord("A") + leaf))
                for _ in range(carries(first, leaf)):
                    right, left = forest.pop(), forest.pop()
                    forest.append(f"({left}{right})")
                assert len(forest) == len(pieces(first, leaf + 1)) <= most_pieces(slots, each)
            held += forest
        for i, j in joins(devices, each, present):
            held[i] = f"({held[i]}{held[j]})"
        assert held[0] == tree(names(present))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6, 7, 8, 13, 32])
def test_a_growing_sum_and_one_of_all_that_is_there_are_the_same_tree(n: int) -> None:
    def add(x: str | None, y: str | None) -> str:
        return f"({x}{y})"

    growing = GrowingSum(add)
    for leaf in names(n):
        growing.take(leaf)
        assert len(growing.forest) == len(pieces(0, growing.count))
    assert growing.total() == tree_total(names(n), add) == tree(names(n))


@pytest.mark.parametrize("slots", [2, 4, 8, 32, 1024])
def test_few_sums_live_at_once(slots: int) -> None:
    levels = slots.bit_length() - 1
    assert most_pieces(slots, slots) == levels  # and the leaf that comes
    for devices in (1, 2, 3, 5, 7):
        assert most_sent(slots, -(-slots // devices)) <= 2 * levels


def test_devices_that_are_subtrees_hold_one_piece() -> None:
    assert forests(4, 2, 8) == (((1, 0),), ((1, 2),), ((1, 4),), ((1, 6),))
    assert most_sent(32, 8) == 1
    assert forests(3, 3, 4) == (((1, 0), (0, 2)), ((0, 3),), ())


def test_a_forest_grows_in_place() -> None:
    leaves = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    forest = np.full((3, 3), np.nan, np.float32)
    for turn, leaf in enumerate(leaves):
        grow(forest, leaf, 3, turn, np.add)
    a, b, c, d, e = leaves  # 3, 4, 5, 6, 7
    want = [a, (b + c) + (d + e)]
    assert forest[:2].tobytes() == np.array(want).tobytes()


def test_a_leaf_of_minus_zero_keeps_its_sign() -> None:
    forest = np.full((2,), 7.0, np.float32)
    grow(forest, np.array(-0.0, np.float32), 0, 0, np.add)
    assert np.signbit(forest[0])


# -- where leaves are cut ---------------------------------------------------------------------------


def mesh(devices: int, slots: int) -> Mesh:
    axes = Axis("data", devices), Axis("leaf", -(-slots // devices), "time")
    return Mesh(axes, Leaves(slots, ("data", "leaf")))


def cut(*axes: str) -> TensorType:
    placement = Placement(tuple((a, Split(0)) for a in axes))
    return TensorType((10, 4), F32, (Extent("batch"), None), placement)


@pytest.mark.parametrize("devices", [1, 2, 3, 4])
@pytest.mark.parametrize("valid", [1, 4, 5, 9, 10])
def test_leaves_lie_at_fixed_places(devices: int, valid: int) -> None:
    m, t = mesh(devices, 4), cut("data", "leaf")
    assert local_shape(t, m) == (3, 4)
    (r, _) = ranges_of(t, m)
    for leaf in range(m.devices * m.turns):
        rank, turn = divmod(leaf, m.turns)
        start = min(3 * leaf, valid)
        found = r.at(m.coordinates(rank, turn), {"batch": valid})
        assert found == (start, min(3, valid - start))


def test_a_device_s_leaves_follow_each_other() -> None:
    m, t = mesh(2, 4), cut("data")
    assert local_shape(t, m) == (6, 4)
    (r, _) = ranges_of(t, m)
    assert [r.at(m.coordinates(rank), {"batch": 8}) for rank in (0, 1)] == [(0, 6), (6, 2)]


@pytest.mark.parametrize("devices", [1, 2, 3, 5])
def test_leaves_that_are_not_full_are_padded_on_any_number_of_devices(devices: int) -> None:
    assert is_uneven(cut("data", "leaf"), mesh(devices, 4), 0)
    assert not is_uneven(cut("data", "leaf"), mesh(devices, 5), 0)
