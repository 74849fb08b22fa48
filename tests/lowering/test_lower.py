"""Law: a lowered program does what its instructions do, and stays inside its buffers."""

from __future__ import annotations

import numpy as np
import pytest
from laws.generator import data_for, make, recipe
from lowering.lowered import Stepper
from lowering.reach import check_reach

from graphc.compiler.pipeline import distribution, partitioning, run_passes
from graphc.ir.types import F32, F64
from graphc.lowering.schedule.schedule import schedule
from graphc.runtime.backends.reference import BACKEND
from graphc.runtime.synchronous.engine import Engine
from graphc.strategies import parse_strategy

SEEDS = range(100)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_lowered_program_gives_what_its_ops_give(seed: int) -> None:
    made = recipe(seed)
    dtype = (F32, F64)[seed % 2]
    data = data_for(made, 6)
    if data is None:
        pytest.skip("no good data")
    model = make(made, 6, dtype)
    strategy = parse_strategy("one_device()")
    passes = [*distribution(strategy), *partitioning(strategy)]
    program = schedule(run_passes(model.graph, passes), exact=True)
    check_reach(program)
    cast = data.cast(dtype)
    variables, batch = cast.variables, cast.inputs
    stepper = Stepper(program, variables)
    with np.errstate(all="ignore"):
        outputs = stepper.step(batch)
    with Engine({"train": program}, BACKEND) as engine:
        engine.load_variables(variables)
        expected = engine.step(batch)
        wanted = engine.variables()
    tolerance = {F32: 2e-4, F64: 1e-9}[dtype]
    for name, value in expected.items():
        np.testing.assert_allclose(outputs[name], value, rtol=tolerance, atol=tolerance)
    for name, value in wanted.items():
        np.testing.assert_allclose(stepper.variables[name], value, rtol=tolerance, atol=tolerance)
