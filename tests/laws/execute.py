"""A partitioned graph run as users run it: scheduled, on virtual devices, by a backend.

The NumPy backends take their memory from a guard, and all other empty arrays are full of NaN: a
case fails whose step touches memory that is nobody's, or uses an entry that nobody wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import count

from graphc_numpy import NumpyBackend
from guard import Guard, fresh_arrays
from laws.footprint import check_memory
from laws.simulate import Arrays, Results

from graphc.ir.graph import Graph
from graphc.lowering.schedule.schedule import schedule
from graphc.runtime.backends.backend import Backend
from graphc.runtime.backends.reference import BACKEND as REFERENCE
from graphc.runtime.synchronous.engine import Engine

Runner = Callable[[Graph, Mapping[str, int], Arrays, Arrays], Results]
PLAIN, NATIVE = NumpyBackend(native=False), NumpyBackend(native=True)
DEADLINE = 600.0  # seconds that a device waits for another: a hang is a failure
_RUNS = count()


class Left(AssertionError):
    """A step gave something else than the one before it on the same data."""


def execute(
    graph: Graph, counts: Mapping[str, int], inputs: Arrays, variables: Arrays,
    *, backend: Backend, short: bool,
) -> Results:  # fmt: skip
    """Run two steps from the same variables, and return what the second one gives.

    What a step leaves behind (an accumulator, a buffer) must not enter the next one: the first one
    begins in memory full of NaN, the second one in what the first has left, and both must give the
    same bits.
    """
    program = schedule(graph, exact=not short)
    check_memory(program)
    # Devices that wait without a deadline add in each other's memory; they must hold the law too.
    deadline = None if backend is NATIVE else DEADLINE
    guard, run = Guard(), next(_RUNS)
    if isinstance(backend, NumpyBackend):
        guard.front, apart = run % 2 == 1, run // 2 % 2 == 1
        backend = replace(backend, allocator=guard.allocator(apart))
    batch = {name: guard.copy(x) for name, x in inputs.items()}
    with fresh_arrays(), Engine({"train": program}, backend, deadline=deadline) as engine:
        found = []
        for _ in range(2):
            engine.load_variables(variables)
            outputs = engine.step(dict(batch), poison=True)
            found.append(Results(outputs, engine.variables()))
        guard.check()
        _check_same(*found)
        return found[1]


def _check_same(first: Results, second: Results) -> None:
    for kind in ("outputs", "variables"):
        for name, x in getattr(first, kind).items():
            if x.tobytes() != (y := getattr(second, kind)[name]).tobytes():
                raise Left(f"{kind} '{name}' are\n{y}\nafter a step that gave\n{x}")


def backend_of(seed: int) -> Backend:
    """The backend that a case runs on: the interpreter, NumPy calls and machine code in turn."""
    return (REFERENCE, PLAIN, NATIVE)[seed % 3]


def runner(backend: Backend, short: bool) -> Runner:
    """`execute` with its options, to be used in place of `simulate`."""
    return partial(execute, backend=backend, short=short)
