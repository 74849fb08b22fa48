"""Many cases traced and compiled as one step: each reports its results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx_nodes.cases import Case, differs, foreign
from onnx_nodes.table import NotOffered

import graphc
from graphc.runtime.backends.backend import Backend
from graphc.support.errors import GraphcError

REFUSALS = (NotOffered, GraphcError)


def refusals(cases: Sequence[Case]) -> dict[str, str]:
    """Why cases can't be written with graphc, by name; each is traced, none is compiled."""
    found: dict[str, str] = {}
    for case in cases:
        if dtype := foreign(case):
            found[case.name] = f"no dtype {dtype}"
            continue
        try:
            _traced([case])
        except REFUSALS as error:
            found[case.name] = str(error).splitlines()[0]
    return found


def node_step(cases: Sequence[Case]) -> Any:
    def step(params: Any, batch: Any) -> Any:
        for number, case in enumerate(cases):
            fed = {k: batch[f"{number}/{k}"] for k in case.fed}
            for i, x in enumerate(case.run(fed)):
                graphc.report(f"{number}_{i}", x)
        return np.sum(params["w"])

    return step


def node_batch(cases: Sequence[Case]) -> dict[str, Any]:
    return {f"{n}/{k}": v for n, case in enumerate(cases) for k, v in case.fed.items()}


def _traced(cases: Sequence[Case]) -> Any:
    params = {"w": np.zeros(1, np.float32)}
    return graphc.trace(
        node_step(cases),
        params,
        node_batch(cases),
        optimizer=graphc.optim.sgd(0.1),
        whole=["*"],
        data_dtype="float64",
    )


def wrong(cases: Sequence[Case], backend: Backend) -> dict[str, str]:
    """What is wrong with the results of cases on a backend, by name."""
    params = {"w": np.zeros(1, np.float32)}
    batch = node_batch(cases)
    with graphc.compile(
        node_step(cases),
        params,
        batch,
        optimizer=graphc.optim.sgd(0.1),
        whole=["*"],
        data_dtype="float64",
        backend=backend,
    ) as trainer:
        results = trainer.step(batch)
    found = {}
    for number, case in enumerate(cases):
        for i, want in enumerate(case.results):
            if text := differs(results[f"{number}_{i}"], want, case):
                found[case.name] = f"result {i}: {text}"
    return found
