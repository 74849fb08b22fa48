"""Steps of unusual structure as machine code, in memory that has nothing beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import graphc_numpy.native.compiled as native
import numpy as np
import pytest
from graphc_numpy import NumpyBackend
from graphc_numpy.memory import USUAL, Allocator
from guard import Guard, fresh_arrays
from lowering.compiled import program_of
from lowering.structures import ALL, Structure

import graphc.support.config as config
from graphc.runtime.synchronous.engine import Engine


def check_guarded(name: str, front: bool = False, apart: bool = True) -> None:
    """A structure's step is what NumPy says, and touches nothing but its memory. Raises Stray."""
    guard = Guard(front)
    with fresh_arrays():
        _step(ALL[name], guard.allocator(apart), guard)
    guard.check(name)


def check_address(name: str) -> None:
    """A structure's step, in a build that checks every address. Raises InternalError."""
    with environment(GRAPHC_CHECK_MEMORY="1"):
        _step(ALL[name], USUAL, Guard())


def _step(x: Structure, allocator: Allocator, guard: Guard) -> None:
    program = program_of(x.loss, x.params, x.batch)
    batch = {name: guard.copy(value) for name, value in x.batch.items()}
    backend = NumpyBackend(native=True, allocator=allocator)
    with Engine({"train": program}, backend) as engine:
        types = program.variable_types.items()
        states = {k: np.zeros(t.shape, t.dtype.numpy) for k, t in types if k not in x.params}
        engine.load_variables(states | x.params)
        loss = engine.step(batch)["loss"]
        guard.check()
        np.testing.assert_allclose(loss, x.wanted, rtol=1e-12)
        x.check_slope(engine.variables())


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Variables of the environment, as graphc reads them, for a while."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        config.get.cache_clear()
        try:
            yield
        finally:
            patch.undo()
            config.get.cache_clear()


@contextmanager
def shared_by_threads() -> Iterator[None]:
    """Threads share each kernel, however small it is."""
    with pytest.MonkeyPatch.context() as patch:
        every = partial(native.compile_regions, grain=1)
        patch.setattr(native, "compile_regions", every)
        yield
