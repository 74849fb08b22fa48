"""Bits of tables that are cut: rows of many equal indices are added up as in the whole table.

No law had so many examples of one index that NumPy adds their rows in another order where it adds
them another way.
"""

from __future__ import annotations

import random

import numpy as np
from graphc_numpy import NumpyBackend

from graphc.compiler.driver import compile_module
from graphc.frontend.language.load import module_of_source
from graphc.runtime.trainer import Trainer
from graphc.strategies import parse_strategy


class Unlike(AssertionError):
    """A table whose bits depend on how it is cut."""


def check(seed: int, native: bool) -> None:
    """Raise Unlike unless a table that is cut, and one that is not, end with the same bits."""
    rng = random.Random(f"cut rows {seed}")
    rows, width, batch = rng.randint(4, 20), 2 * rng.randint(1, 4), rng.choice((40, 150, 300))
    function, optimizer = rng.choice(("sin", "tanh", "exp")), rng.choice(("adam(0.1)", "sgd(0.1)"))
    text = f"""step s(t: i32[batch]) {{
        param e: f32[{rows}, {width}] = normal(1.0)
        minimize mean({function}(e[t])) with {optimizer}
    }}"""
    module = module_of_source(text, "cut.gc", {"batch": batch})
    found = []
    for strategy in ("one_device()", f'tensor_split(2, {{"e": {seed % 2}}})'):
        plan = compile_module(module, parse_strategy(f"{strategy} * reproducible(1, tiles=2)"))
        data = np.random.default_rng(seed)
        with Trainer(plan, NumpyBackend(native=native)) as trainer:
            for _ in range(2):
                trainer.step({"t": data.integers(0, rows, batch).astype(np.int32)})
            found.append({n: a.tobytes() for n, a in trainer.variables().items()})
    if found[0] != found[1]:
        raise Unlike(f"seed {seed}, native {native}:\n{text}")
