"""Whole native steps on what arrays may be and hold: no entries, one, tails, NaN and infinities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from graphc_numpy import NumpyBackend
from laws.generator import data_for, make, recipe

from graphc.compiler.pipeline import distribution, partitioning, run_passes
from graphc.ir.graph import Graph
from graphc.ir.types import F32
from graphc.lowering.program.program import Program
from graphc.lowering.schedule.schedule import schedule
from graphc.runtime.backends.reference import BACKEND as REFERENCE
from graphc.runtime.synchronous.engine import Engine
from graphc.strategies import parse_strategy
from graphc.support.errors import GraphcError

Array = np.ndarray[Any, np.dtype[Any]]
SIZES = (1, 17, 0)  # of the batch
SPECIAL = (np.nan, np.inf, -np.inf)


def program_of(graph: Graph) -> Program:
    strategy = parse_strategy("one_device()")
    return schedule(
        run_passes(graph, [*distribution(strategy), *partitioning(strategy)]), exact=True
    )


def awkward(x: Array, kind: int) -> Array:
    """The same entries where no vector would have them: every other one, or off by a byte."""
    if kind:
        wide = np.repeat(x[..., None], 2, axis=-1)
        return wide[..., 0]
    raw = np.empty(x.nbytes + 1, np.uint8)
    y = raw[1:].view(x.dtype).reshape(x.shape)
    y[...] = x
    return y


def batch_for(program: Program, seed: int) -> dict[str, Array]:
    """Normal numbers, in some entries of which is what is none; only index 0 in whole numbers."""
    rng = np.random.default_rng(seed)
    made = {}
    for k, (name, t) in enumerate(program.inputs.items()):
        x = (rng.normal(size=t.shape) * (t.dtype.kind == "f")).astype(t.dtype.numpy)
        if x.size and t.dtype.kind == "f":
            x.reshape(-1)[rng.integers(0, x.size, 3)] = SPECIAL
        made[name] = awkward(x, k % 2)
    return made


@pytest.mark.parametrize("seed", range(15))
def test_a_generated_step_gives_what_its_ops_give(seed: int) -> None:
    size = SIZES[seed % 3]
    data = data_for(recipe(seed), max(size, 2))
    try:
        program = program_of(make(recipe(seed), size, F32).graph)
    except GraphcError as error:
        pytest.skip(error.message)  # the largest of no entries
    if data is None:
        pytest.skip("no good data")
    variables = data.cast(F32).variables
    found = []
    for backend in (NumpyBackend(native=True), REFERENCE):
        with Engine({"train": program}, backend) as engine:
            engine.load_variables(variables)
            outputs = engine.step(batch_for(program, seed))
            found.append(outputs | engine.variables())
    native, wanted = found
    for name, value in wanted.items():
        np.testing.assert_allclose(native[name], value, rtol=2e-4, atol=2e-4, err_msg=name)
