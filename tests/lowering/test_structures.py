"""Lowered steps of unusual structure give what NumPy gives, and stay inside their memory."""

from __future__ import annotations

import pytest
from lowering.check import check_structure
from lowering.structures import ALL

from graphc.ir.op import all_ops
from graphc.lowering.kernel.code import FUNCTIONS
from graphc.ops.elementwise import Aggregate, Elementwise


@pytest.mark.parametrize("name", ALL)
def test_a_structure_is_what_numpy_says(name: str) -> None:
    check_structure(ALL[name])


def test_every_elementwise_op_of_graphc_is_a_function_of_kernels() -> None:
    ops = {name: op for name, op in all_ops().items() if issubclass(op, Elementwise)}
    names = {name for name, op in ops.items() if not (op.view or op is Aggregate)}
    assert names == FUNCTIONS
