"""What is counted of launches, for kernels whose numbers are known."""

from __future__ import annotations

from math import prod

import pytest

pytest.importorskip("llvmlite")

from backends.native.test_nests import adding, folding
from backends.native.test_products import contraction
from gpu.launches import GpuRates, cost, table

from graphc.ir.types import F32


def test_a_map_moves_what_it_reaches_if_neighbors_are_neighbors() -> None:
    near = cost(adding(F32, (1 << 20,), (1,), (1,)))
    assert near.needed == near.moved == 3 * 4 << 20
    assert near.trips == 1 and near.blocks == 4096
    far = cost(adding(F32, (1 << 20,), (1,), (64,)))
    assert far.needed == near.needed and far.moved == (2 + 8) * 4 << 20  # a sector for 4 bytes


def test_a_long_row_is_a_chain_of_few_threads() -> None:
    fold = cost(folding(F32, "sum", (64,), (65_536,), (65_536, 1), "columns"))
    assert fold.trips == 1024 and fold.blocks == 16
    assert fold.seconds(GpuRates()) > 1024 * GpuRates().trip


def test_a_product_has_its_operations() -> None:
    product = cost(contraction(((), (300,), (4096,), (200,))))
    assert product.flops == 2 * prod((300, 4096, 200)) and product.trips == 256
    assert product.moved > product.needed  # a tile reads again what others have read


def test_the_launches_of_a_step_are_listed() -> None:
    head, names, *lines = table("tiny", 3, GpuRates(), whole=False, registers=False)
    assert head.startswith("tiny: 4 launches (one for each kernel: 4) of 4 kernels, at least ")
    assert names.split() == ["at", "least", "times", "blocks", "trips", "needed", "moved", "loops"]
    assert len(lines) == 3
