"""Native steps of unusual structure give what NumPy and the reference give, under strategies too.

By default every seventh is run; the lowered form of all of them is tried in tests/lowering.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from graphc_numpy import NumpyBackend
from lowering.structures import ALL, Structure

import graphc
from graphc.runtime.backends.backend import Backend
from graphc.runtime.backends.reference import BACKEND as REFERENCE

NATIVE = NumpyBackend(native=True)
STRATEGIES = ("mirrored(2)", "accumulate(2)", "mirrored(2) * accumulate(2)")
EVERY = 7


def sampled(names: list[str]) -> list[Any]:
    """All names; all but each seventh take long."""
    slow = [() if k % EVERY == 0 else pytest.mark.slow for k in range(len(names))]
    return [pytest.param(name, marks=mark) for name, mark in zip(names, slow, strict=True)]


def updated(x: Structure, strategy: str, backend: Backend) -> tuple[float, Any]:
    """The loss, and the parameters after a step."""
    options: dict[str, Any] = {"optimizer": graphc.optim.sgd(0.5), "strategy": strategy}
    with graphc.compile(x.loss, x.params, x.batch, backend=backend, **options) as trainer:
        return float(trainer.step(x.batch)["loss"]), trainer.params


def check(x: Structure, strategy: str) -> None:
    """The loss is NumPy's, and the gradient that of the reference."""
    loss, params = updated(x, strategy, NATIVE)
    np.testing.assert_allclose(loss, x.wanted, rtol=1e-12)
    _, wanted = updated(x, strategy, REFERENCE)
    for k, value in wanted.items():
        np.testing.assert_allclose(params[k], value, rtol=1e-9, atol=1e-12, err_msg=k)


@pytest.mark.parametrize("name", sampled([*ALL]))
def test_a_native_step_is_what_numpy_says(name: str) -> None:
    x = ALL[name]
    loss, params = updated(x, "one_device()", NATIVE)
    np.testing.assert_allclose(loss, x.wanted, rtol=1e-12)
    x.check_slope(params)


@pytest.mark.parametrize("name", sampled([*ALL][1:]))
def test_a_strategy_changes_nothing_but_roundings(name: str) -> None:
    check(ALL[name], STRATEGIES[[*ALL].index(name) % len(STRATEGIES)])


@pytest.mark.parametrize("name", sampled([k for k, x in ALL.items() if x.split]))
def test_a_split_parameter_changes_nothing_but_roundings(name: str) -> None:
    dims = ", ".join(f'"{k}": {d}' for k, d in ALL[name].split)
    check(ALL[name], f"tensor_split(2, {{{dims}}})")
