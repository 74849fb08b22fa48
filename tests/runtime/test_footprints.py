"""What devices say they have taken is what they have taken."""

from __future__ import annotations

import gc
import tracemalloc
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from graphc_numpy import NumpyBackend
from graphc_numpy.native.device import NativeDevice

from graphc.compiler.driver import compile_module
from graphc.frontend.language.load import load_module
from graphc.lowering.lower import lower
from graphc.lowering.memory.memory_plan import plan_memory
from graphc.lowering.program.program import Footprint
from graphc.plan.plan import Plan
from graphc.runtime.backends import plugins
from graphc.runtime.backends.backend import Backend, Device
from graphc.runtime.synchronous.engine import Engine
from graphc.strategies import parse_strategy

DIGITS = load_module(Path(__file__).parents[2] / "examples" / "digits.gc")
BATCH = {"x": np.ones((256, 64), np.float32), "y": np.zeros(256, np.int32)}
STRATEGIES = ("one_device", "accumulate(4)", "mirrored(2)", "central_storage(3)")
LINE = 64


@cache
def plan(strategy: str) -> Plan:
    return compile_module(DIGITS, parse_strategy(strategy))


def engine(strategy: str, backend: Backend) -> Engine:
    made = Engine(plan(strategy).step_programs, backend)
    types = made.first.variable_types
    made.load_variables({n: np.ones(t.shape, t.dtype.numpy) for n, t in types.items()})
    return made


def taken(strategy: str, backend: Backend) -> tuple[Footprint, ...]:
    with engine(strategy, backend) as made:
        made.step(BATCH)
        return made.footprints


def total(each: tuple[Footprint, ...]) -> int:
    return sum(f.devices * f.peak for f in each)


def unused(device: Device) -> int:
    """Bytes that a native device's arena has for steps that were not run."""
    return device.unused if isinstance(device, NativeDevice) else 0


@pytest.mark.one_in(3)
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("strategy", STRATEGIES[1:])
def test_devices_tell_all_the_arrays_that_they_keep(strategy: str, native: bool) -> None:
    backend = NumpyBackend(native=native)
    taken(strategy, backend)  # what is loaded and compiled once
    gc.collect()
    tracemalloc.start()
    try:
        with engine(strategy, backend) as made:
            made.step(BATCH)
            gc.collect()
            arrays = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)
            traces = tracemalloc.take_snapshot().filter_traces([arrays]).traces
            kept = sum(trace.size for trace in traces)
            told = total(made.footprints)
            kept -= sum(unused(device) for device in made._devices.values())
    finally:
        tracemalloc.stop()
    words = 4096 * 3 + 2 * LINE * len(traces)  # frames, what blocks are aligned by
    exchanged = plan(strategy).training.variable_bytes if plan(strategy).devices > 1 else 0
    assert told <= kept <= told + words + exchanged


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_numpy_calls_take_what_the_program_says(strategy: str) -> None:
    # One arena serves all programs, and constants are those of each.
    found = taken(strategy, NumpyBackend(native=False))
    programs = plan(strategy).step_programs.values()
    assert found[0].arena == max(plan_memory(p).arena for p in programs)
    assert found[0].variables == plan_memory(plan(strategy).training).footprints[0].variables
    assert sum(f.devices for f in found) == plan(strategy).devices


def test_steps_for_short_batches_lie_in_the_arena_of_the_others() -> None:
    whole, short = (plan("accumulate(4)").programs[name] for name in ("train", "train.short"))
    with engine("accumulate(4)", NumpyBackend(native=True)) as made:
        for n in (256, 255, 256, 100):
            made.step({name: x[:n] for name, x in BATCH.items()})
        (found,) = made.footprints
    assert found.arena == max(lower(whole).arena, lower(short).arena)


@pytest.mark.parametrize("strategy", ["one_device", "accumulate(4)"])
def test_native_steps_take_the_arena_of_their_kernels(strategy: str) -> None:
    (found,) = taken(strategy, NumpyBackend(native=True))
    program = plan(strategy).training
    assert found.arena == lower(program).arena < plan_memory(program).arena
    assert found.variables == program.variable_bytes
    assert found.constants <= program.constant_bytes  # those that are only numbers in the code


def test_what_devices_share_is_shared_out() -> None:
    found = taken("mirrored(2)", NumpyBackend(native=True))
    one = plan("one_device").training.variable_bytes
    assert one <= sum(f.devices * f.variables for f in found) <= one + 2 * LINE


def test_a_backend_of_kernels_keeps_every_value() -> None:
    (found,) = taken("one_device", plugins.backend("reference"))
    program = plan("one_device").training
    assert found.variables == program.variable_bytes and found.arena > plan_memory(program).arena
    assert found.peak == found.variables + found.constants + found.arena + found.scratch
