"""Kernels that reach past their operands fail; in production that may go well, or end the process."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from backends.native.harness import run_kernel
from guard import POSSIBLE, Stray

from graphc.ir.types import F32
from graphc.lowering.kernel.code import Access, Load, Nest, Parameter, Phase, Store

pytestmark = pytest.mark.skipif(not POSSIBLE, reason="rights of pages are set as on Linux")


def copy(n: int) -> Nest:
    code = Load(0, Access(0, (1,))), Store(Access(1, (1,)), 0)
    return Nest((Parameter(F32), Parameter(F32, written=True)), (n,), (), (Phase(False, code),))


def shifted(nest: Nest, statement: int, by: int) -> Nest:
    code = list(nest.phases[0].code)
    x = code[statement]
    assert isinstance(x, Load | Store)
    code[statement] = replace(x, access=replace(x.access, offset=by))
    return replace(nest, phases=(Phase(False, tuple(code)),))


@pytest.mark.parametrize("n", [1, 16, 37, 1000])
@pytest.mark.parametrize("by", [-1, 1])
def test_a_kernel_that_reads_beside_its_operand_fails(n: int, by: int) -> None:
    arrays = [np.ones(n, np.float32), np.zeros(n, np.float32)]
    run_kernel(copy(n), arrays)
    with pytest.raises(
        Stray, match="block 1 .* was touched, " + ("behind" if by > 0 else "before")
    ):
        run_kernel(shifted(copy(n), 0, by), arrays)


@pytest.mark.parametrize("n", [16, 37])
@pytest.mark.parametrize("by", [-1, 1])
def test_a_kernel_that_writes_beside_its_result_fails(n: int, by: int) -> None:
    arrays = [np.ones(n, np.float32), np.zeros(n, np.float32)]
    with pytest.raises(Stray, match="block 2"):
        run_kernel(shifted(copy(n), 1, by), arrays)
