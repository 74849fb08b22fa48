"""Variables that are read where they lie, and written part by part, hold what they should when.

Each step reads variables in an unusual place: in the loss by themselves, in a report, after others
were updated, through windows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from graphc_numpy import NumpyBackend

import graphc
from graphc import nn
from graphc.optim import sgd
from graphc.support.errors import GraphcWarning

Arrays: TypeAlias = dict[str, np.ndarray[Any, Any]]
Step: TypeAlias = Callable[[Any, Any], Any]

STRATEGIES = (
    "zero(2, stage=2)", "zero(2, stage=3)", "zero(3, stage=2)",
    "zero(2, stage=2) * accumulate(2)", "central_storage(2)", "central_storage(3)",
    "parameter_server(2, 2) * accumulate(2)",
    "tensor_split(2)", "zero(2, stage=2) * reproducible(4)",
)  # fmt: skip


def in_the_loss(params: Any, batch: Any) -> Any:
    """Gradients that need no example, so that nothing holds up the updates."""
    w, u = params["w"], params["u"]
    return np.mean(batch["x"] * batch["x"]) + np.mean(np.square(w)) + np.sum(u), {}


def by_one_number(params: Any, batch: Any) -> Any:
    """What each of three devices has of t is as large as u, which is whole everywhere: one kernel
    updates both."""
    scale = np.mean(np.square(batch["x"]))
    return scale * (np.sum(params["t"] * params["t"]) + np.sum(params["u"])), {}


def in_a_report(params: Any, batch: Any) -> Any:
    w, u = params["w"], params["u"]
    loss = np.mean((batch["x"] @ w) * u[0])
    return loss, {"w": w, "turned": w.T * 2.0, "both": np.concatenate([w, w], axis=0)}


def in_each_other(params: Any, batch: Any) -> Any:
    """The gradient of each is computed of the other."""
    scores = np.einsum("...,a->a", np.sum(params["w"]), batch["x"][:, 0])
    return np.mean(np.reshape(scores, (scores.shape[0], -1)) * params["u"]), {}


def through_windows(params: Any, batch: Any) -> Any:
    image = np.reshape(params["w"], (1, 4, 6, 1))
    return np.sum(nn.conv2d(image, params["v"]) ** 2) * np.mean(batch["x"]), {}


STEPS: tuple[Step, ...] = (in_the_loss, by_one_number, in_a_report, in_each_other, through_windows)


def values() -> tuple[Arrays, Arrays]:
    """Variables and a batch of 6 examples."""
    rng = np.random.default_rng(7)
    shapes = {"w": (4, 6), "u": (1, 1), "v": (3, 3, 1, 2), "t": (3,)}
    params = {k: rng.normal(size=s).astype(np.float32) for k, s in shapes.items()}
    return params, {"x": rng.normal(size=(6, 4)).astype(np.float32)}


def check(step: Step, strategy: str) -> None:
    """Machine code gives what the interpreter gives, for some steps."""
    params, batch = values()
    given: dict[str, Any] = {"optimizer": sgd(0.05, momentum=0.5), "strategy": strategy}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphcWarning)  # a step need not use all variables
        native, wanted = (
            graphc.compile(step, params, batch, backend=backend, **given)
            for backend in (NumpyBackend(native=True), "reference")
        )
    with native, wanted:
        for _ in range(3):
            a, b = native.step(batch), wanted.step(batch)
            for name in b:
                np.testing.assert_allclose(a[name], b[name], rtol=1e-4, atol=1e-5, err_msg=name)
        for name, value in wanted.params.items():
            np.testing.assert_allclose(
                native.params[name], value, rtol=1e-4, atol=1e-5, err_msg=name
            )
