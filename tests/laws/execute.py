"""A partitioned graph run as users run it: scheduled, on virtual devices, by a backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from graphc_numpy import NumpyBackend
from laws.footprint import check_memory
from laws.simulate import Arrays, Results

from graphc.graph import Graph
from graphc.passes.schedule import schedule
from graphc.runtime.backend import Backend
from graphc.runtime.engine import Engine
from graphc.runtime.reference import BACKEND as REFERENCE

Runner = Callable[[Graph, Mapping[str, int], Arrays, Arrays], Results]
PLAIN, NATIVE = NumpyBackend(native=False), NumpyBackend(native=True)
DEADLINE = 30.0  # seconds that a device waits for another: a hang is a failure


def execute(
    graph: Graph, counts: Mapping[str, int], inputs: Arrays, variables: Arrays,
    *, backend: Backend, short: bool,
) -> Results:  # fmt: skip
    """Run two steps from the same variables, and return what the second one gives.

    What a step leaves behind (an accumulator, a buffer) must not enter the next one.
    """
    program = schedule(graph, exact=not short)
    check_memory(program)
    # Devices that wait without a deadline add in each other's memory; they must hold the law too.
    deadline = None if backend is NATIVE else DEADLINE
    with Engine({"train": program}, backend, deadline=deadline) as engine:
        for _ in range(2):
            engine.load_variables(variables)
            outputs = engine.step(dict(inputs), poison=True)
        return Results(outputs, engine.variables())


def backend_of(seed: int) -> Backend:
    """The backend that a case runs on: the interpreter, NumPy calls and machine code in turn."""
    return (REFERENCE, PLAIN, NATIVE)[seed % 3]


def runner(backend: Backend, short: bool) -> Runner:
    """`execute` with its options, to be used in place of `simulate`."""
    return partial(execute, backend=backend, short=short)
