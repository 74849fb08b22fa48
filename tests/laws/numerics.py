"""Traced NumPy functions are NumPy's: at awkward numbers, on short batches, in their dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import graphc
from graphc.frontend.numpy.trace import record
from graphc.runtime.backends.reference import BACKEND as REFERENCE
from graphc.support.errors import GraphcError
from graphc.testing.compute import evaluate

Call = Callable[..., Any]
AWKWARD = np.array([0.5, -1e9, 1e9, 3e19, -3e30, 89.0, -89.0, np.inf, -np.inf, np.nan, 0.0, 1.0])
FUNCTIONS: tuple[Call, ...] = (
    np.logaddexp, np.logaddexp2, np.hypot, np.arctan2, np.maximum, np.remainder,
    lambda a, b: np.sinh(a) + 0 * b, lambda a, b: np.cosh(a) + 0 * b,
    lambda a, b: np.arcsinh(a) + 0 * b, lambda a, b: np.arccosh(a) + 0 * b,
)  # fmt: skip
SIZES: tuple[Call, ...] = (
    lambda x, n: 1.0 / n * np.sum(x), lambda x, n: np.float32(3) / n * np.sum(x),
    lambda x, n: np.sqrt(n) * np.sum(x), lambda x, n: np.sum(x) / float(n),
    lambda x, n: np.sum(x) * math.sqrt(n), lambda x, n: np.sum(x) * sum(range(n)),
    lambda x, n: np.sum(x) if n > 2 else 2 * np.sum(x),
)  # fmt: skip


@np.errstate(all="ignore")
def check_ranges() -> None:
    """Raise AssertionError where a function is not NumPy's at an awkward number."""
    for dtype in (np.float32, np.float64):
        a, b = (v.ravel().astype(dtype) for v in np.meshgrid(AWKWARD, AWKWARD))
        for function in FUNCTIONS:
            (found,) = _evaluated(function, a, b)
            wanted = function(a, b)
            np.testing.assert_allclose(found, wanted, rtol=1e-5 if dtype == np.float32 else 1e-13)


def check_sizes() -> None:
    """Raise AssertionError where a form of the batch's size is wrong on a short batch."""
    x, w = np.arange(1, 5, dtype=np.float32), {"w": np.float32(1)}
    for form in SIZES:

        def step(params: Any, batch: Any, form: Call = form) -> Any:
            return form(batch["x"] * params["w"], batch["x"].shape[0])

        sgd = graphc.optim.sgd(0.0)
        with graphc.compile(step, w, {"x": x}, optimizer=sgd, backend=REFERENCE) as trainer:
            for count in (4, 2):
                try:
                    found = trainer.step({"x": x[:count]})["loss"]
                except GraphcError as error:
                    assert error.code == "G0613"
                    continue
                np.testing.assert_allclose(found, form(x[:count], count), rtol=1e-5)


def check_dtypes() -> None:
    """Raise AssertionError where a step of f64 computes in f32."""
    x = np.linspace(-1, 1, 5)
    for call in (
        lambda x: np.where(x > 0, 0.1, 0.7) * x,
        lambda x: np.select([x > 0], [0.1], 0.7) * x,
        lambda x: np.hypot(x, 0.1),
    ):
        (found,) = _evaluated(call, x)
        np.testing.assert_allclose(found, call(x), rtol=1e-15)


def _evaluated(call: Call, *arrays: Any) -> list[Any]:
    feeds = {f"x{i}": x for i, x in enumerate(arrays)}
    graph = record(lambda p, b: {"y": call(*b.values())}, {}, feeds, whole=["*"]).graph
    values = evaluate(graph, feeds)
    return [values[node] for node in graph.outputs.values()]
