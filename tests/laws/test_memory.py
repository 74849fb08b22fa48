"""Law 6: what strategies save in memory, known before anything is run."""

from __future__ import annotations

import numpy as np
import pytest
from graphc_numpy import BACKEND
from laws.footprint import check_memory
from laws.networks import mlp, under

from graphc.lowering.lower import lower
from graphc.lowering.memory.memory_plan import plan_memory
from graphc.lowering.program.program import Program
from graphc.lowering.schedule.schedule import schedule
from graphc.runtime.synchronous.engine import run_once

WIDTHS = (64, 128, 128, 128, 64)
BATCH = 512


def program(strategy: str, batch: int = BATCH, bias: bool = True) -> Program:
    made = schedule(under(mlp(WIDTHS, batch, bias), strategy), exact=True)
    check_memory(made)
    return made


def test_four_microbatches_need_at_most_two_fifths_of_the_arena_of_one() -> None:
    four, one = (plan_memory(program(f"accumulate({n})")).arena for n in (4, 1))
    assert four <= 0.4 * one


def test_more_microbatches_never_need_more() -> None:
    arenas = [plan_memory(program(f"accumulate({k})")).arena for k in (1, 2, 4, 8)]
    assert arenas == sorted(arenas, reverse=True)


@pytest.mark.parametrize("strategy", [f"accumulate({k})" for k in (1, 2, 4, 8)])
def test_kernels_need_no_more_of_an_arena_than_the_program(strategy: str) -> None:
    made = program(strategy)
    assert lower(made).arena <= plan_memory(made).arena


def test_a_tensor_split_over_four_holds_a_quarter_of_the_parameters_on_each_device() -> None:
    whole, part = program("one_device()"), program("tensor_split(4)")
    assert part.variable_bytes <= (0.25 + 0.1) * whole.variable_bytes


def test_mirrored_devices_share_the_activations() -> None:
    four, one = (plan_memory(program(f"mirrored({n})")).arena for n in (4, 1))
    assert four <= 0.4 * one


def test_a_model_too_large_for_one_device_runs_on_four() -> None:
    whole, part = program("one_device()", batch=8), program("tensor_split(4)", batch=8)
    limit = plan_memory(whole).footprints[0].peak // 2
    assert plan_memory(part).footprints[0].peak <= limit
    rng = np.random.default_rng(0)
    variables = {
        k: rng.normal(0, 0.1, t.shape).astype(np.float32) for k, t in whole.variable_types.items()
    }
    batch = {"x": rng.normal(0, 1, (8, WIDTHS[0])).astype(np.float32)}
    one, _ = run_once(whole, BACKEND, batch, variables)
    four, _ = run_once(part, BACKEND, batch, variables)
    assert four["loss"] == pytest.approx(one["loss"], rel=1e-5)
