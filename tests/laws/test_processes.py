"""Random programs in several processes have the bits of threads, under every strategy: in any
number of processes where the order of sums is fixed, else with one device in each.

The processes are played by threads that share nothing but a bridge (runtime.memory_bridge).
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from laws.programs import entries, folds, lookups, products, shapes  # noqa: F401 - pieces
from laws.programs.grow import grow
from laws.programs.program import Program
from laws.programs.strategies import strategy_of
from runtime.test_processes import adds_in_any_order, in_processes

from graphc import nn, optim
from graphc.api import traced_module
from graphc.compiler.driver import compile_module
from graphc.plan.plan import Plan
from graphc.runtime.trainer import Trainer
from graphc.strategies import parse_strategy
from graphc.support.errors import GraphcError

FEW, SEVERAL, MANY = 12, 162, 3012


def planned(program: Program, strategy: str) -> tuple[Plan, Any]:
    params, batch = program.data(program.sizes[0])
    module, recording = traced_module(
        program.function(nn=nn, F=np.float32), params, batch,
        optimizer=optim.sgd(1.0), whole=program.whole,
    )  # fmt: skip
    return compile_module(module, parse_strategy(strategy)), recording.values


def trained(program: Program, plan: Plan, values: Any, **how: Any) -> list[Any]:
    """What steps of all sizes give, in bits; of one that is refused, the code."""
    made: list[Any] = []
    with Trainer(plan, values=values, **how) as trainer:
        full, short = program.sizes
        for size in (full, *([short] * (short < full)), full):
            try:
                results = trainer.step(program.data(size)[1])
            except GraphcError as error:
                made.append(error.code)
                continue
            made.append({k: np.asarray(x).tobytes() for k, x in results.items()})
        made.append({k: x.tobytes() for k, x in trainer.variables().items()})
    return made


def check(seed: int) -> bool:
    """Whether a seed makes a program for several devices; raises AssertionError for other bits."""
    program = grow(seed)
    strategy = strategy_of(program, seed)
    try:
        plan, values = planned(program, strategy)
    except GraphcError:
        return False
    counts = [n for n in (2, 3, 4) if plan.devices % n == 0]
    if plan.asynchronous is not None or not counts:
        return False
    wanted = trained(program, plan, values)
    count = plan.devices if adds_in_any_order(plan) else counts[seed % len(counts)]
    for found in in_processes(count, lambda t, k: trained(program, plan, values, transport=t)):
        assert found == wanted, f"seed {seed} under {strategy} in {count} processes"
    return True


@pytest.mark.one_in(1)
@pytest.mark.parametrize(
    "seeds",
    [
        range(FEW),
        *(pytest.param(range(k, k + 50), marks=pytest.mark.ci) for k in range(FEW, SEVERAL, 50)),
        *(pytest.param(range(k, k + 50), marks=pytest.mark.slow) for k in range(SEVERAL, MANY, 50)),
    ],
    ids=lambda seeds: str(seeds.start),
)
def test_random_programs_have_the_same_bits_in_several_processes(seeds: range) -> None:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        assert sum(map(check, seeds)) > len(seeds) // 3
