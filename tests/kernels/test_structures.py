"""Lowered steps of unusual structure give what NumPy gives, and stay inside their memory."""

from __future__ import annotations

import numpy as np
import pytest
from kernels.compiled import program_of
from kernels.lowered import Stepper
from kernels.reach import check_reach
from kernels.structures import JOINS, VIEWS

ALL = {
    f"{kind}: {name}": x
    for kind, xs in (("view", VIEWS), ("join", JOINS))
    for name, x in xs.items()
}


@pytest.mark.parametrize("name", ALL)
def test_a_structure_is_what_numpy_says(name: str) -> None:
    x = ALL[name]
    program = program_of(x.loss, x.params, x.batch)
    check_reach(program)
    stepper = Stepper(program, x.params)
    np.testing.assert_allclose(stepper.step(x.batch)["loss"], x.wanted, rtol=1e-12)
    x.check_slope(stepper.variables)
