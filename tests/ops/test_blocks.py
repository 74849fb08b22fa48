"""Fixed blocks against plain NumPy: values, and bits that no cut changes."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any, TypeAlias

import numpy as np
import pytest

from graphc.ir.placement import Axis, Mesh, Tiles, capacity, shard_bounds
from graphc.ops.blocks import block_length, blocks_of, tree_sum
from graphc.ops.contract import Einsum
from graphc.ops.reduce import ReduceSum

Array: TypeAlias = "np.ndarray[Any, Any]"
RNG = np.random.default_rng(0)


def drawn(*shape: int, dtype: str = "f4") -> Array:
    return RNG.normal(size=shape).astype(dtype)


@pytest.mark.parametrize(
    ("n", "tiles", "length"),
    [(8, 4, 2), (7, 4, 2), (10, 4, 3), (11, 4, 3), (10, 2, 5), (9, 2, 5), (5, 1, 5), (128, 8, 16)],
)
def test_the_last_block_may_be_shorter(n: int, tiles: int, length: int) -> None:
    assert block_length(n, tiles) == length


@pytest.mark.parametrize(("n", "tiles"), [(9, 4), (3, 4), (5, 4), (1, 2), (0, 2)])
def test_no_block_is_empty(n: int, tiles: int) -> None:
    assert block_length(n, tiles) == 0


@pytest.mark.parametrize("tiles", [2, 4, 8])
def test_every_number_of_devices_that_divides_the_tiles_cuts_between_blocks(tiles: int) -> None:
    for n in range(1, 200):
        if length := block_length(n, tiles):
            assert (tiles - 1) * length < n <= tiles * length
            for axes in ((2,), (4,), (8,), (2, 2), (4, 2)):
                if tiles % prod(axes) == 0:
                    cut_between_blocks(n, tiles, length, axes)


def cut_between_blocks(n: int, tiles: int, length: int, sizes: tuple[int, ...]) -> None:
    """Every device has as many whole blocks; the last of all may be shorter."""
    names = tuple(f"m{i}" for i in range(len(sizes)))
    mesh = Mesh(tuple(map(Axis, names, sizes)), tiles=Tiles(tiles, names))
    widths, each = mesh.widths(n, names, False), length * (tiles // prod(sizes))
    devices = product(*map(range, sizes))
    found = [shard_bounds(n, list(zip(sizes, at, strict=True)), widths) for at in devices]
    assert [start for start, _ in found] == [i * each for i in range(prod(sizes))]
    assert sum(n for _, n in found) == n and capacity(n, sizes, widths) == each


def test_the_tree_adds_neighbors_first() -> None:
    a, b, c, d, e = (drawn(64) for _ in range(5))
    assert np.array_equal(tree_sum([a, b, c, d]), (a + b) + (c + d))
    assert np.array_equal(tree_sum([a, b, c, d, e]), ((a + b) + (c + d)) + e)
    assert np.array_equal(tree_sum([a]), a)


def test_the_tree_rounds_at_every_node() -> None:
    parts = [np.array([x], np.float16) for x in (1.0, 2.0**-11, 2.0**-11, 2.0**-11)]
    assert tree_sum(parts).dtype == np.float16
    assert tree_sum(parts)[0] == np.float16(1.0) + np.float16(2.0**-10)


def test_blocks_cover_every_entry_once_the_first_name_the_major() -> None:
    found = list(blocks_of("ab", {"a": 4, "b": 2}, {"a": 2, "b": 1}))
    starts = [(where["a"].start, where["b"].start) for where in found]
    assert starts == [(0, 0), (0, 1), (2, 0), (2, 1)]


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "f2"])
def test_a_product_in_blocks_is_the_product(dtype: str) -> None:
    a, b = (drawn(5, 7) * 4).astype(dtype), (drawn(7, 6) * 4).astype(dtype)
    blocks = (("k", 2), ("n", 3), ("b", 3))
    y = Einsum("bk,kn->nb", blocks).run(a, b)
    plain = Einsum("bk,kn->nb").run(a, b)
    assert y.dtype == plain.dtype and y.shape == plain.shape
    np.testing.assert_allclose(y, plain, rtol=1e-2 if dtype == "f2" else 1e-5, atol=0.1)


CASES = [
    ("bk,kn->bn", (17, 64), (64, 24), (("k", 16), ("n", 6))),
    ("bk,nk->nb", (17, 31), (21, 31), (("n", 6), ("k", 8))),
    ("bhqd,bhkd->bhqk", (2, 4, 5, 8), (2, 4, 6, 8), (("h", 1), ("d", 2))),
    ("k,k->", (256,), (256,), (("k", 64),)),
    ("bm,bn->mn", (9, 32), (9, 40), (("m", 8), ("n", 10))),
]


@pytest.mark.parametrize(("spec", "left", "right", "blocks"), CASES)
@pytest.mark.parametrize("devices", [2, 4])
def test_devices_that_hold_whole_blocks_make_the_bits_of_one(
    spec: str, left: tuple[int, ...], right: tuple[int, ...],
    blocks: tuple[tuple[str, int], ...], devices: int,
) -> None:  # fmt: skip
    a, b, op = drawn(*left), drawn(*right), Einsum(spec, blocks)
    whole = op.run(a, b)
    (x, y), out = spec.split("->")[0].split(","), spec.split("->")[1]
    for letter in dict(blocks):
        parts = [
            op.run(part(a, x, letter, i, devices), part(b, y, letter, i, devices))
            for i in range(devices)
        ]
        if letter in out:
            joined = np.concatenate(parts, out.index(letter))
            found = joined[tuple(map(slice, whole.shape))]
        else:
            found = tree_sum(parts)
        first = next(z for z in dict(blocks) if z not in out) if letter not in out else letter
        assert letter != first or np.array_equal(found, whole), letter


def part(x: Array, names: str, letter: str, i: int, parts: int) -> Array:
    """A device's part of x, padded with zeros; x itself, where it lacks the letter."""
    if letter not in names:
        return x
    dim = names.index(letter)
    n = -(-x.shape[dim] // parts)
    taken = np.take(x, range(i * n, min((i + 1) * n, x.shape[dim])), dim)
    behind = [(0, n - taken.shape[d] if d == dim else 0) for d in range(x.ndim)]
    return np.pad(taken, behind)


def test_a_sum_in_blocks_is_the_sum() -> None:
    x = drawn(7, 5, 8)
    for over in ((0,), (1, 2), (0, 1, 2), ()):
        y = ReduceSum(over, ((0, 2), (2, 2))).run(x)
        np.testing.assert_allclose(y, x.sum(over), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("devices", [2, 4])
def test_parts_of_a_sum_make_its_bits(devices: int) -> None:
    x = drawn(500, 64)
    cut = np.split(x, devices, axis=1)
    kept = ReduceSum((0,), ((1, 16),))
    assert np.array_equal(np.concatenate([kept.run(p) for p in cut]), kept.run(x))
    summed = ReduceSum((1,), ((1, 16),))
    assert np.array_equal(tree_sum([summed.run(p) for p in cut]), summed.run(x))


def test_a_sum_over_several_tiled_dims_is_one_after_the_other_the_batch_first() -> None:
    steps = ReduceSum((0, 1, 3)).in_blocks({"a1": 2, "a3": 4, "a2": 5})
    assert steps == (
        ReduceSum((0,), ((1, 2), (2, 5), (3, 4))),
        ReduceSum((2,), ((0, 2), (1, 5), (2, 4))),
        ReduceSum((0,), ((0, 2), (1, 5))),
    )
