"""What a backend has no kernel for runs with the op's own: ops of other packages, on every path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from graphc_numpy import NumpyBackend
from lowering.third_party import STRUCTURES, known

import graphc
from graphc.lowering.kernel_listing import print_kernels
from graphc.runtime.backends.backend import Backend
from graphc.runtime.backends.reference import BACKEND as REFERENCE

BACKENDS = {
    "native": NumpyBackend(native=True),
    "numpy": NumpyBackend(native=False),
    "reference": REFERENCE,
}
STRATEGIES = ("one_device()", "mirrored(2)", "accumulate(2)")


@pytest.fixture(autouse=True)
def ops() -> Iterator[None]:
    with known():
        yield


def compiled(name: str, strategy: str, backend: Backend) -> graphc.StepTrainer:
    x = STRUCTURES[name]
    options: dict[str, Any] = {"optimizer": graphc.optim.sgd(0.5), "strategy": strategy}
    return graphc.compile(x.loss, x.params, x.batch, backend=backend, **options)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", STRUCTURES)
def test_an_op_of_another_package_gives_what_its_kernel_gives(name: str, backend: str) -> None:
    x = STRUCTURES[name]
    for strategy in STRATEGIES if backend == "native" else STRATEGIES[:1]:
        with compiled(name, strategy, BACKENDS[backend]) as trainer:
            np.testing.assert_allclose(trainer.step(x.batch)["loss"], x.wanted, rtol=1e-12)
            x.check_slope(trainer.params)


@pytest.mark.parametrize("name", STRUCTURES)
def test_it_stays_with_the_host_and_the_listing_says_so(name: str) -> None:
    with compiled(name, "one_device()", BACKENDS["native"]) as trainer:
        lines = print_kernels(trainer.trainer.plan.programs["train"]).splitlines()
    assert any(line.lstrip().startswith("host") and f"= {name} " in line for line in lines), lines
    assert any("map" in line and "tanh" in line for line in lines)
