"""The kernels of all examples and of the workloads that benchmarks run."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from graphc.cli.given_step import GivenStep, plan_of
from graphc.lowering.kernel.code import LoopKernel, TiledKernel
from graphc.lowering.kernel.lowered import Native
from graphc.lowering.lower import lower
from graphc.lowering.program.program import Program
from graphc.support.errors import GraphcWarning

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted(x.name for x in (ROOT / "examples").glob("*.gc"))
STRATEGIES = ("one_device()", "mirrored(2)")


@cache
def kernels_of_example(name: str, strategy: str) -> tuple[LoopKernel, ...]:
    """Every kernel of an example's programs once; also those inside of tiled ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT / "examples")
        plan = plan_of(GivenStep(Path(name), strategy))
    return tuple(dict.fromkeys(k for p in plan.programs.values() for k in kernels_of(p)))


@cache
def kernels_of_workload(name: str, strategy: str) -> tuple[LoopKernel, ...]:
    """Every kernel of a workload's step once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "tests" / "benchmarks")
        import systems
        import workloads

        with warnings.catch_warnings():  # of a workload without a batch
            warnings.simplefilter("ignore", GraphcWarning)
            made = systems.compiled(workloads.WORKLOADS[name](), strategy).trainer
    return tuple(dict.fromkeys(kernels_of(made.plan.programs["train"])))


def workload_names() -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(ROOT / "tests" / "benchmarks"), *sys.path])
        import workloads

        return list(workloads.WORKLOADS)


def kernels_of(program: Program) -> Iterator[LoopKernel]:
    """The kernels of a program, and of the steps of tiled ones."""
    lines = (x for part in lower(program).parts for x in part if isinstance(x, Native))
    for call in (call for line in lines for call in line.calls):
        yield call.kernel
        if isinstance(call.kernel, TiledKernel):
            yield from (k for step in call.kernel.steps for k in step.kernels)


__all__ = ["EXAMPLES", "STRATEGIES", "kernels_of_example", "kernels_of_workload"]
