"""Compiling grows with the nodes, not with the devices. tests/benchmarks/scale.py measures more."""

from __future__ import annotations

import cProfile
import pstats
import tracemalloc
from collections.abc import Callable

import pytest
from benchmarks.scale import DEVICES, source

from graphc.compiler.driver import compile_module
from graphc.frontend.language.load import module_of_source
from graphc.lowering.program.program import Kernel, Program, Start, reads, writes
from graphc.plan.plan import Plan
from graphc.strategies import parse_strategy

SMALL, LARGE = 10, 40  # layers
SLACK = 1.4  # over growth in proportion; what is quadratic would be 4 times over it


def compiled(layers: int, strategy: str) -> Plan:
    module = module_of_source(source(layers), sizes={"batch": 2_048})
    return compile_module(module, parse_strategy(strategy))


def shape_of(program: Program) -> list[object]:
    """A program without its numbers: its instructions, and the buffers that they name."""
    found: list[object] = [(b.id, b.name, b.kind, b.base) for b in program.buffers]
    for part in (program.setup, *program.parts):
        for x in part:
            op = x.op.name if isinstance(x, Kernel | Start) else ""
            found.append((type(x).__name__, op, reads(x), writes(x)))
        found.append("end of part")
    return found


def test_programs_depend_on_the_servers_and_not_on_the_workers() -> None:
    plans = [compiled(3, f"parameter_server({n}, 2)") for n in DEVICES[1:]]
    for name in plans[0].programs:
        shapes = [shape_of(plan.programs[name]) for plan in plans]
        assert shapes.count(shapes[0]) == len(shapes), name


def test_a_plan_for_many_devices_is_no_longer() -> None:
    few, many = (len(compiled(3, f"mirrored({n})").text()) for n in (8, 1_024))
    assert many < 1.05 * few


def calls(layers: int, strategy: str) -> int:
    """Function calls of a compilation: time, without the clock."""
    with cProfile.Profile() as profile:
        compiled(layers, strategy)
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


def peak(layers: int, strategy: str) -> int:
    """The largest number of bytes that Python holds in a compilation."""
    tracemalloc.start()
    try:
        compiled(layers, strategy)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("measure", [calls, peak])
def test_compiling_grows_in_proportion_to_the_nodes(measure: Callable[[int, str], int]) -> None:
    strategy = "mirrored(4) * accumulate(2)"
    measure(2, strategy)  # what is imported and cached once
    assert measure(LARGE, strategy) < SLACK * LARGE / SMALL * measure(SMALL, strategy)
