"""Runs programs on a backend and on the reference, and says where the results differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.lowering.program.program import Program
from graphc.runtime.backends.backend import Backend
from graphc.runtime.backends.reference import BACKEND as REFERENCE
from graphc.runtime.synchronous.engine import Engine
from graphc.runtime.transports.local import TRANSPORT as LOCAL
from graphc.runtime.transports.transport import Transport
from graphc.support.distance import within
from graphc.testing.dealt import Dealt

if TYPE_CHECKING:
    from graphc.ir.op import Array

TOLERANCE = {"float64": 1e-11, "float32": 1e-5, "float16": 4e-3, "bfloat16": 4e-2}
Results = dict[str, "Array"]


TRANSPORT: list[Transport] = [LOCAL]  # the one under test, from `--transport NAME`


def engine_of(programs: Mapping[str, Program], backend: Backend) -> Engine:
    """An engine on the transport under test."""
    return Engine(programs, backend, Dealt(TRANSPORT[-1]), deadline=600)


def run(
    program: Program,
    backend: Backend,
    batch: Mapping[str, Any] | None = None,
    variables: Mapping[str, Any] | None = None,
    *,
    steps: int = 1,
    poison: bool = True,
) -> Results:
    """The outputs of the last step and the variables after it, in one dict."""
    with engine_of({"program": program}, backend) as engine:
        engine.load_variables(variables or {})
        outputs: Results = {}
        for _ in range(steps):
            outputs = engine.step(batch or {}, poison=poison)
        after = {f"variable {name}": x for name, x in engine.variables().items()}
    return outputs | after


def check_agrees(
    program: Program,
    backend: Backend,
    batch: Mapping[str, Any] | None = None,
    variables: Mapping[str, Any] | None = None,
    *,
    what: str = "",
    steps: int = 1,
) -> Results:
    """Run on the backend; raise AssertionError where a result is not the reference's."""
    wanted = run(program, REFERENCE, batch, variables, steps=steps)
    results = run(program, backend, batch, variables, steps=steps)
    check_close(results, wanted, f"backend '{backend.name}': {what or program.name}")
    return results


def check_close(actual: Mapping[str, Any], wanted: Mapping[str, Any], what: str) -> None:
    """Raise AssertionError unless both hold the same values, up to rounding."""
    assert actual.keys() == wanted.keys(), f"{what}: results {list(actual)}, not {list(wanted)}"
    for name, want in wanted.items():
        have = actual[name]
        assert have.shape == want.shape and have.dtype == want.dtype, (
            f"{what}: {name} is {have.dtype}{have.shape}, not {want.dtype}{want.shape}"
        )
        assert _close(have, want), f"{what}: {name} is\n{have}\nnot\n{want}"


def _close(have: Array, want: Array) -> bool:
    tolerance = TOLERANCE.get(str(want.dtype))
    if tolerance is None:
        return bool(np.array_equal(have, want))
    return within(have, want, tolerance, least=1e-3)
