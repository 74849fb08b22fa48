"""A structure, lowered and run by the interpreter of kernels, against NumPy."""

from __future__ import annotations

import numpy as np
from lowering.compiled import program_of
from lowering.lowered import Stepper
from lowering.reach import check_reach
from lowering.structures import Structure


def check_structure(x: Structure) -> None:
    """No kernel leaves its buffers; the loss is NumPy's, and the gradient its slope."""
    program = program_of(x.loss, x.params, x.batch)
    check_reach(program)
    states = {k: np.zeros(t.shape, t.dtype.numpy) for k, t in program.variable_types.items()}
    stepper = Stepper(program, states | x.params)
    np.testing.assert_allclose(stepper.step(x.batch)["loss"], x.wanted, rtol=1e-12)
    x.check_slope(stepper.variables)
