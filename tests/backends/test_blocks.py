"""Products in fixed blocks on the numpy backend: values, and bits that no cut changes."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pytest
from graphc_numpy.calls.blocks import bind_blocks
from graphc_numpy.memory import Scratch

from graphc.ops.blocks import tree_sum
from graphc.ops.contract import contract, contract_blocks

Array: TypeAlias = "np.ndarray[Any, Any]"
CASES = [
    ("bk,kn->bn", (17, 64), (64, 24), {"k": 16, "n": 6}),
    ("bk,kn->nb", (17, 64), (64, 24), {"n": 6, "k": 16}),
    ("bk,nk->nb", (17, 31), (21, 31), {"n": 6, "k": 8}),
    ("bhqd,bhkd->bhqk", (2, 4, 5, 8), (2, 4, 6, 8), {"h": 1, "d": 2}),
    ("bhqd,hde->bqe", (3, 4, 5, 8), (4, 8, 6), {"h": 1, "d": 2}),
    ("k,k->", (256,), (256,), {"k": 64}),
    ("a,b->ba", (8,), (12,), {"a": 2, "b": 3}),
    ("bm,bn->mn", (9, 32), (9, 40), {"m": 8, "n": 10}),
    ("bk,kn->bn", (3, 4), (4, 4), {"k": 1, "n": 1}),
]


def computed(spec: str, blocks: dict[str, int], a: Array, b: Array) -> Array:
    out = np.full(contract(spec, a, b).shape, np.nan, a.dtype)
    for call in bind_blocks(spec, blocks, a, b, out, Scratch()):
        call()
    return out


@pytest.mark.parametrize(("spec", "left", "right", "blocks"), CASES)
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2"])
def test_it_is_the_product_in_blocks_bit_by_bit(
    spec: str, left: tuple[int, ...], right: tuple[int, ...], blocks: dict[str, int], dtype: str
) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=left).astype(dtype), rng.normal(size=right).astype(dtype)
    want = contract_blocks(spec, blocks, a, b)
    assert np.array_equal(computed(spec, blocks, a, b), want)
    turned = np.asfortranarray(a), np.asfortranarray(b)
    assert np.array_equal(computed(spec, blocks, *turned), want)


@pytest.mark.parametrize("devices", [2, 4])
def test_a_device_with_some_of_the_blocks_makes_their_bits(devices: int) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(33, 256)).astype("f4"), rng.normal(size=(256, 96)).astype("f4")
    blocks = {"k": 64, "n": 24}
    whole = computed("bk,kn->bn", blocks, a, b)
    columns = [computed("bk,kn->bn", blocks, a, x) for x in np.split(b, devices, 1)]
    assert np.array_equal(np.concatenate(columns, 1), whole)
    pairs = zip(np.split(a, devices, 1), np.split(b, devices), strict=True)
    assert np.array_equal(tree_sum(computed("bk,kn->bn", blocks, x, y) for x, y in pairs), whole)


def test_operands_may_lie_in_any_order_in_memory() -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(size=(64, 200)).astype("f4")
    part = base[:, 30:94]
    b = rng.normal(size=(64, 32)).astype("f4")
    blocks = {"k": 16, "n": 8}
    assert np.array_equal(
        computed("bk,kn->bn", blocks, part, b), computed("bk,kn->bn", blocks, part.copy(), b)
    )
