"""Indices into several dims at once: each is checked by itself, whatever its dtype counts to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from graphc_numpy import NumpyBackend

import graphc
from graphc.support.errors import GraphcError

BACKENDS: dict[str, Any] = {
    "native": NumpyBackend(native=True),
    "numpy": NumpyBackend(native=False),
    "reference": "reference",
}
TABLE = np.random.default_rng(0).standard_normal((250, 7)).astype(np.float32)
SOURCE = """
step lookup(i: {dtype}[n], j: {dtype}[n]) {{
    param t: f32[3, 4] = normal(1.0)
    report y = t[i, j]
    minimize sum(t[i, j]) with sgd(0.0)
}}
"""


def looked_up(table: Any, batch: dict[str, Any], backend: Any) -> Any:
    def loss(params: Any, batch: Any) -> Any:
        y = params["t"][batch["i"], batch["j"]]
        graphc.report("y", y)
        return np.sum(y)

    how = graphc.optim.sgd(0.0)
    with graphc.compile(loss, {"t": table}, batch, optimizer=how, backend=backend) as trainer:
        return trainer.step(batch)["y"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("i", "j"),
    [([0, 1], [4, 0]), ([1, 2], [-5, 0]), ([0, -4], [1, 1]), ([3, 0], [0, 0]), ([0, 1], [0, 9])],
)
def test_an_index_out_of_its_own_dim_is_an_error_where_all_together_are_an_entry(
    i: Sequence[int], j: Sequence[int], backend: str
) -> None:
    table = TABLE[:3, :4]
    batch = {"i": np.array(i, np.int32), "j": np.array(j, np.int32)}
    with pytest.raises(IndexError):
        table[batch["i"], batch["j"]]
    with pytest.raises(GraphcError, match="G0506"):
        looked_up(table, batch, BACKENDS[backend])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64])
def test_indices_of_a_small_dtype_count_as_far_as_the_table_has_entries(
    dtype: type, backend: str
) -> None:
    rng = np.random.default_rng(1)
    batch = {k: rng.integers(0, n, 40).astype(dtype) for k, n in (("i", 250), ("j", 7))}
    found = looked_up(TABLE, batch, BACKENDS[backend])
    np.testing.assert_array_equal(found, TABLE[batch["i"], batch["j"]])


def test_the_same_in_the_language() -> None:
    from graphc.compiler.driver import compile_module
    from graphc.frontend.language.load import module_of_source
    from graphc.runtime.trainer import Trainer
    from graphc.strategies import parse_strategy

    module = module_of_source(SOURCE.format(dtype="u8"), sizes={"n": 2})
    plan = compile_module(module, parse_strategy("one_device()"))
    with Trainer(plan, BACKENDS["native"]) as trainer:
        t = trainer.variables("param")["t"]
        good = {"i": np.array([2, 1], np.uint8), "j": np.array([3, 0], np.uint8)}
        np.testing.assert_array_equal(trainer.step(good)["y"], t[[2, 1], [3, 0]])
        with pytest.raises(GraphcError, match="G0506"):
            trainer.step({"i": np.array([0, 1], np.uint8), "j": np.array([4, 0], np.uint8)})
