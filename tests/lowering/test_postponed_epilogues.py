"""Epilogues that run with the sums of what they compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn
from graphc.lowering.kernel_listing import print_kernels

N = 4


def kernels(trainer: Any) -> list[str]:
    """The listing of a step."""
    return print_kernels(trainer.trainer.plan.programs["train"]).splitlines()


def compiled(loss: Any, params: Any, x: Any, strategy: str = "one_device()") -> Any:
    sgd = graphc.optim.sgd(0.1)
    return graphc.compile(loss, params, {"x": x}, optimizer=sgd, strategy=strategy)


def weights() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shapes = {"k": (3, 3, 1, 16), "g": (16,), "b": (16,), "d": (3, 3, 1, 16), "first": (16, 16)}
    return {n: rng.normal(size=s).astype(np.float32) for n, s in shapes.items()}


def normalized(p: Any, b: Any) -> Any:
    """Two depthwise convolutions with a normalization between."""
    h = nn.conv2d(b["x"] @ p["first"], p["k"], groups=16)
    h = nn.relu(nn.batch_norm(h, p["g"], p["b"]))
    return np.mean(nn.conv2d(h, p["d"], groups=16) ** 2)


def biased(p: Any, b: Any) -> Any:
    """One sum of what follows a product, which another product reads."""
    h = nn.relu(b["x"] @ p["first"] + p["b"])
    return np.mean((h @ p["first"]) ** 2)


def images() -> Any:
    return np.random.default_rng(1).normal(size=(N, 8, 8, 16)).astype(np.float32)


def test_sums_of_an_epilogue_run_with_it() -> None:
    """The gradient of relu, scale and shift is not stored for its sums."""
    with compiled(normalized, weights(), images()) as trainer:
        after_relu = [line for line in kernels(trainer) if "select" in line]
    assert len(after_relu) == 1, after_relu
    assert after_relu[0].count("reduce_sum") >= 2, after_relu
    assert "fold_windows" not in after_relu[0]


def test_an_epilogue_with_one_sum_stays() -> None:
    """Its product would be stored and loaded for nothing."""
    used = {n: x for n, x in weights().items() if n in ("first", "b")}
    with compiled(biased, used, images()) as trainer:
        after_relu = [line for line in kernels(trainer) if "select" in line]
    assert any("product" in line for line in after_relu), after_relu


@pytest.mark.parametrize(
    "strategy", ["one_device()", pytest.param("mirrored(2)", marks=pytest.mark.ci)]
)
def test_the_step_is_that_of_numpy_calls(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with compiled(normalized, weights(), images(), strategy) as trainer:
        trainer.step({"x": images()})
        native = {n: np.array(x) for n, x in trainer.params.items()}
    monkeypatch.setenv("GRAPHC_NATIVE", "0")
    graphc.support.config.get.cache_clear()
    try:
        with compiled(normalized, weights(), images(), strategy) as trainer:
            trainer.step({"x": images()})
            for n, x in trainer.params.items():
                np.testing.assert_allclose(native[n], x, rtol=1e-4, atol=1e-5)
    finally:
        monkeypatch.undo()
        graphc.support.config.get.cache_clear()


def gated(p: Any, b: Any) -> Any:
    """Gradients that are sums of what follows a short fold, and of a part of it, too."""
    above = p["w"] + np.mean(p["w"])
    return np.mean(np.tile(np.maximum(above, p["floor"]), 2) ** 2)


def test_an_epilogue_whose_results_are_read_from_another_place_on_stays() -> None:
    """Each device adds its section of the gradient to the sum of all of it."""
    w = np.array([0.1, 0.4, -1.5], np.float32)
    found = []
    for strategy in ("one_device()", "zero(3, stage=3)"):
        params = {"w": w, "floor": np.array([1.1], np.float32)}
        with compiled(gated, params, np.ones((3, 1), np.float32), strategy) as trainer:
            for _ in range(3):
                trainer.step({"x": np.ones((3, 1), np.float32)})
            found.append({n: np.array(x) for n, x in trainer.params.items()})
    np.testing.assert_allclose(found[0]["w"], found[1]["w"], rtol=1e-6)
    np.testing.assert_allclose(found[0]["floor"], found[1]["floor"], rtol=1e-6)
