"""Steps with several loops over microbatches, on the backend and on one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pytest

from graphc.ir.builder import Builder
from graphc.ir.graph import Graph
from graphc.ir.types import F64
from graphc.runtime.backends.backend import Backend
from graphc.runtime.backends.reference import interpret
from graphc.testing.models import (
    classifier_data,
    entry,
    first_values,
    masked_data,
    masked_regression,
    normalized,
)  # fmt: skip
from graphc.testing.running import Results, check_close, engine_of
from graphc.testing.test_steps import differentiated, programs

BATCH = 12
Data: TypeAlias = Callable[[int], Results]


def masked(batch: int) -> Graph:
    return differentiated(masked_regression(batch, dtype=F64))


def norm(batch: int) -> Graph:
    return differentiated(normalized(batch, dtype=F64))


def sharpest(batch: int) -> Graph:
    """A softmax over the batch: every microbatch needs the maximum and the sum over all of them."""
    f = Builder("sharpest")
    x = entry(f, "x", (batch, 3), F64)
    share = f.softmax(x, axis=0)
    f.outputs["y"] = f.sum(share * f.tanh(x), axis=0).name
    f.outputs["each"] = share.name
    return f.build()


def rows(batch: int) -> Results:
    return {"x": np.random.default_rng(0).normal(size=(batch, 3)) - 50.0}


STEPS = [(masked, masked_data), (norm, classifier_data), (sharpest, rows)]
STRATEGIES = ["accumulate(3)", "mirrored(2) * accumulate(3)", "accumulate(5) * mirrored(2)"]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("step", "data"), STEPS, ids=["mask", "norm", "softmax"])
def test_a_statistic_of_the_batch_is_that_of_all_turns(
    step: Callable[[int], Graph], data: Data, strategy: str, backend: Backend
) -> None:
    graph = step(BATCH)
    values = first_values(graph)
    with engine_of(programs(graph, strategy), backend) as engine:
        for valid in (BATCH, 7, 1):  # full, uneven, with turns that get no example
            batch, alone = data(valid), step(valid)
            engine.load_variables(values)
            results = engine.step(batch, "train", poison=True)
            wanted, updates = interpret(alone, batch, values)
            what = f"{backend.name} under {strategy}, {valid} examples"
            check_close(results, wanted, what)
            check_close(engine.variables(), values | updates, what)


@pytest.mark.parametrize("sizes", [(4, 4, 4), (4, 1, 4), (3, 2)])
def test_a_stream_is_read_again_in_every_loop(sizes: tuple[int, ...], backend: Backend) -> None:
    ends = np.cumsum(sizes)
    graph, alone = norm(BATCH), norm(int(ends[-1]))
    values, batch = first_values(graph), classifier_data(int(ends[-1]))
    parts = [{k: v[j - n : j] for k, v in batch.items()} for n, j in zip(sizes, ends, strict=True)]
    strategy = "mirrored(2) * accumulate(3)"
    with engine_of(programs(graph, strategy), backend) as engine:
        engine.load_variables(values)
        results = engine.step(iter(parts), "train", poison=True)
        wanted, updates = interpret(alone, batch, values)
        check_close(results, wanted, "a stream of microbatches")
        check_close(engine.variables(), values | updates, "a stream of microbatches")
