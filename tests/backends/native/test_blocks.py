"""Runs over blocks as machine code: attention on every instruction set, and on any threads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("llvmlite")

from graphc_numpy import NumpyBackend
from graphc_numpy.native.gemm import zero_tails
from lowering.attention import attention

import graphc
from graphc import nn
from graphc.lowering import target as targets
from graphc.runtime.backends.reference import BACKEND
from graphc.support import config
from graphc.support.errors import GraphcError

NATIVE = NumpyBackend(native=True)
BF16 = np.dtype(ml_dtypes.bfloat16)
STRATEGY = "reproducible(2)"


def changed(patch: pytest.MonkeyPatch, **numbers: int) -> None:
    """Have kernels lowered for a CPU with other numbers."""
    patch.setattr(targets, "CPU", replace(targets.CPU, **numbers))


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Small values are worth a run, too; blocks are small, and nothing is kept on disk."""
    changed(monkeypatch, tiled=1, cache=1, tile_rows=4)
    monkeypatch.setenv("GRAPHC_CACHE", "0")
    config.get.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    config.get.cache_clear()


def trained(backend: Any, shape: tuple[Any, ...], steps: int = 2, **more: Any) -> dict[str, Any]:
    """The weights after some steps, and the loss."""
    loss, weights, batch = attention(*shape)
    optimizer = graphc.optim.sgd(0.5)
    with graphc.compile(
        loss, weights, batch, optimizer=optimizer, backend=backend, **more
    ) as trainer:  # fmt: skip
        made = [trainer.step(batch)["loss"] for _ in range(steps)]
        hash = trainer.params_sha256()
        return {
            "loss": made[-1],
            "sha": hash,
            **{k: np.asarray(v) for k, v in trainer.params.items()},
        }


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "shape",
    [
        (2, 2, 1, 4), (1, 3, 13, 5, np.float32, True), (2, 2, 9, 16, np.float64, False),
        (2, 1, 40, 8, np.float32, True, 17), (3, 2, 33, 3, np.float64, True),
        (2, 2, 24, 8, BF16, True), (2, 2, 64, 8, BF16, True), (2, 3, 11, 4, np.float16, False), (1, 1, 17, 4),
    ],
)  # fmt: skip
def test_attention_in_blocks_is_that_of_the_reference(
    eager: pytest.MonkeyPatch, shape: tuple[Any, ...]
) -> None:
    found, wanted = trained(NATIVE, shape), trained(BACKEND, shape)
    half = len(shape) > 4 and np.dtype(shape[4]).itemsize == 2
    tolerance = 0.03 if half else 2e-5
    for name in ("loss", *"qkvo"):
        x, y = (np.asarray(v[name], np.float64) for v in (found, wanted))
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


def test_threads_and_instruction_sets_give_the_same_bits(eager: pytest.MonkeyPatch) -> None:
    found = set()
    for target in ("host", "avx512", "avx2", "baseline"):
        for threads in ("1", "2"):
            eager.setenv("GRAPHC_TARGET", target)
            eager.setenv("GRAPHC_THREADS", threads)
            config.get.cache_clear()
            try:
                found.add(trained(NATIVE, (2, 3, 50, 16))["sha"])
            except GraphcError as error:
                assert error.code == "G0706", error
    assert len(found) == 1


@pytest.mark.parametrize("strategy", ["mirrored(2)", "accumulate(2)", "tensor_split(2)"])
def test_blocks_are_those_of_any_strategy(eager: pytest.MonkeyPatch, strategy: str) -> None:
    eager.setattr(zero_tails, "FEWEST", 16)
    shape = (4, 2, 48, 8)
    found, wanted = trained(NATIVE, shape, strategy=strategy), trained(BACKEND, shape)
    for name in ("loss", *"qkvo"):
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5, atol=1e-5)


def test_reproducible_steps_in_blocks_have_the_same_bits_on_any_devices(
    eager: pytest.MonkeyPatch,
) -> None:
    eager.setattr(zero_tails, "FEWEST", 16)
    ways = "reproducible(4)", "mirrored(2) * reproducible(4)", "accumulate(2) * reproducible(4)"
    assert len({trained(NATIVE, (4, 2, 48, 8), strategy=along)["sha"] for along in ways}) == 1


def test_blocks_of_a_reproducible_step_change_no_bits(eager: pytest.MonkeyPatch) -> None:
    shape = (8, 2, 24, 8)
    small = trained(NATIVE, shape, strategy=STRATEGY)["sha"]
    changed(eager, tiled=1 << 60)
    assert trained(NATIVE, shape, strategy=STRATEGY)["sha"] == small


@pytest.mark.one_in(3)
@pytest.mark.parametrize("target", ["host", "avx2", "baseline"])
@pytest.mark.parametrize(("length", "cache"), [(48, 1), (80, 20_000), (1056, 200_000)])
def test_products_that_leave_out_zeros_have_the_same_bits(
    eager: pytest.MonkeyPatch, target: str, length: int, cache: int
) -> None:
    eager.setenv("GRAPHC_TARGET", target)
    config.get.cache_clear()
    changed(eager, cache=cache)
    found = set()
    for fewest in (16, 1 << 60):
        eager.setattr(zero_tails, "FEWEST", fewest)
        found.add(trained(NATIVE, (2, 2, length, 8), steps=1)["sha"])
    assert len(found) == 1


def first_rows(p: Any, given: Any) -> Any:
    """What the first positions see is half of all."""
    y = nn.attention(given["x"], given["x"], given["v"] * p["s"], causal=True)
    return np.mean(np.where(np.arange(80)[:, None] < 16, y, 0))


@pytest.mark.parametrize("wrong", [None, np.inf, -np.inf, np.nan])
def test_zeros_are_not_left_out_where_a_factor_is_not_finite(
    eager: pytest.MonkeyPatch, wrong: float | None
) -> None:
    eager.setattr(zero_tails, "FEWEST", 16)
    rng = np.random.default_rng(0)
    x, v = (rng.standard_normal((3, 80, 8)).astype(np.float32) for _ in range(2))
    if wrong is not None:
        v[1, 70, 3] = wrong
    for backend in (NATIVE, BACKEND):
        with graphc.compile(
            first_rows, {"s": np.ones((), np.float32)}, {"x": x, "v": v},
            optimizer=graphc.optim.sgd(0.5), backend=backend,
        ) as trainer:  # fmt: skip
            assert np.isnan(trainer.step({"x": x, "v": v})["loss"]) == (wrong is not None)
