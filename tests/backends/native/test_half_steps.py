"""Steps in half precision: a convolution, dense layers and attention, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from shares import every

pytest.importorskip("llvmlite")

from graphc_numpy import NumpyBackend

import graphc
from graphc import nn
from graphc.runtime.backends.reference import BACKEND
from graphc.support import config
from graphc.support.errors import GraphcError

NATIVE = NumpyBackend(native=True)
DTYPES = [np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)]
RUNS = (("host", "1"), ("host", "2"), ("avx512", "2"), ("avx2", "2"), ("baseline", "1"))
WAYS = (
    "reproducible(4)", "mirrored(2) * reproducible(4)", "accumulate(2) * reproducible(4)",
)  # fmt: skip


@pytest.fixture(autouse=True)
def uncached(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("GRAPHC_CACHE", "0")
    config.get.cache_clear()
    yield
    monkeypatch.undo()
    config.get.cache_clear()


def drawn(dtype: np.dtype[Any], shapes: dict[str, Sequence[int]]) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    made = {k: rng.standard_normal(s) / np.sqrt(np.prod(s[:-1]) or 1) for k, s in shapes.items()}
    return {k: x.astype(dtype) for k, x in made.items()}


def loss(p: Any, b: Any) -> Any:
    """All sums have an odd number of entries somewhere, so that a pair has but one."""
    x = nn.relu(nn.conv2d(b["x"], p["k"]))
    q = np.reshape(x, (x.shape[0], 25, 7)) @ p["q"]
    y = nn.attention(q[:, None], q[:, None], q[:, None], causal=True)[:, 0]
    h = np.tanh(np.reshape(y, (x.shape[0], -1)) @ p["w"] + p["c"])
    return np.mean((h @ p["v"] - b["y"]) ** 2)


def trained(backend: Any, dtype: np.dtype[Any], strategy: str = "one_device()") -> dict[str, Any]:
    """The weights after two steps."""
    weights = drawn(
        dtype, {"k": (3, 3, 3, 7), "q": (7, 9), "w": (225, 21), "c": (21,), "v": (21, 3)}
    )
    batch = drawn(dtype, {"y": (8, 3)}) | {"x": drawn(dtype, {"x": (1, 8, 5, 5, 3)})["x"][0] * 8}
    optimizer = graphc.optim.sgd(0.05)
    with graphc.compile(
        loss, weights, batch, optimizer=optimizer, backend=backend, strategy=strategy
    ) as trainer:
        for _ in range(2):
            trainer.step(batch)
        found = {k: np.asarray(v).astype(np.float64) for k, v in trainer.params.items()}
        return found | {"sha": trainer.params_sha256()}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_step_is_that_of_the_reference(dtype: np.dtype[Any]) -> None:
    found, wanted = trained(NATIVE, dtype), trained(BACKEND, dtype)
    for name in "kqwcv":
        np.testing.assert_allclose(found[name], wanted[name], rtol=0.03, atol=0.01)


@pytest.mark.parametrize("dtype", every(2, DTYPES), ids=str)
def test_threads_and_instruction_sets_give_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, dtype: np.dtype[Any]
) -> None:
    found = set()
    for target, threads in RUNS:
        monkeypatch.setenv("GRAPHC_TARGET", target)
        monkeypatch.setenv("GRAPHC_THREADS", threads)
        config.get.cache_clear()
        try:
            found.add(trained(NATIVE, dtype)["sha"])
        except GraphcError as error:
            assert error.code == "G0706", error
    assert len(found) == 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reproducible_steps_have_the_same_bits_on_any_devices(dtype: np.dtype[Any]) -> None:
    assert len({trained(NATIVE, dtype, way)["sha"] for way in WAYS}) == 1
