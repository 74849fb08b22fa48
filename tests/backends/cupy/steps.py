"""Steps of digits on a backend: what they give, and what they leave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from backends.cupy.stand_in import StandIn
from graphc_cupy import CupyBackend

from graphc.compiler.driver import compile_module
from graphc.frontend.language.load import load_module
from graphc.plan.plan import Plan
from graphc.runtime.backends.backend import Backend
from graphc.runtime.synchronous.engine import Engine
from graphc.strategies import parse_strategy

Array = np.ndarray[Any, np.dtype[Any]]
Batch = Mapping[str, Array]
DIGITS = load_module(Path(__file__).parents[3] / "examples" / "digits.gc")


@cache
def plan(strategy: str) -> Plan:
    return compile_module(DIGITS, parse_strategy(strategy))


def batch(count: int = 256, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    x = rng.random((count, 64), np.float32)
    return {"x": x, "y": rng.integers(0, 10, count).astype(np.int32)}


def on(cuda: StandIn) -> CupyBackend:
    return CupyBackend(gpu=lambda: cuda.gpu, missing=lambda: None)


@contextmanager
def engine(strategy: str, backend: Backend) -> Iterator[Engine]:
    """With the first values of the variables."""
    with Engine(plan(strategy).step_programs, backend) as made:
        made.load_variables(start_values(made))
        yield made


def start_values(made: Engine) -> dict[str, Array]:
    rng = np.random.default_rng(1)
    types = made.first.variable_types
    return {
        n: np.abs(rng.standard_normal(t.shape) / 8).astype(t.dtype.numpy) for n, t in types.items()
    }


def trained(
    strategy: str, backend: Backend, batches: Sequence[Batch]
) -> tuple[list[bytes], dict[str, bytes]]:
    """The bits of the outputs of every step, and of the variables behind the last one."""
    with engine(strategy, backend) as made:
        outputs = [made.step(b) for b in batches]
        left = {name: x.tobytes() for name, x in made.variables().items()}
    return [x.tobytes() for each in outputs for _, x in sorted(each.items())], left
