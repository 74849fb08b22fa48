"""Runs a program from the file that is written if graphc fails in a step.

    GRAPHC_CHECK_MEMORY=1 python -m graphc.runtime.diagnosis.replay graphc-crash.plan

The file contains the program, and no data: steps run on random numbers, and on zeros for integers.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphc.ir.types import TensorType
from graphc.plan.plan import load
from graphc.runtime.backends.plugins import backend
from graphc.runtime.synchronous.engine import Engine
from graphc.support.errors import GraphcError


def replay(path: str | Path) -> None:
    """Run one step of each program of a file. Raises what a step raises."""
    rng = np.random.default_rng(0)
    for name, program in load(path).programs.items():
        with Engine({name: program}, backend("numpy")) as engine:
            engine.load_variables(_drawn(program.variable_types, rng))
            engine.step(_drawn(program.inputs, rng))


def _drawn(types: Mapping[str, TensorType], rng: np.random.Generator) -> dict[str, Any]:
    def drawn(t: TensorType) -> Any:
        floats = t.dtype.kind == "f"
        return (rng.normal(size=t.shape) if floats else np.zeros(t.shape)).astype(t.dtype.numpy)

    return {name: drawn(t) for name, t in types.items()}


if __name__ == "__main__":
    try:
        replay(sys.argv[1])
    except GraphcError as error:
        sys.exit(str(error))
