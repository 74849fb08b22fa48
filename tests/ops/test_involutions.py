"""Ops that undo themselves say so, and only they do."""

from __future__ import annotations

import numpy as np
import pytest

import graphc.ops  # noqa: F401
from graphc.ir.op import all_ops
from graphc.testing.samples import Case, sample_cases

MAPS = {
    name: op
    for name, op in all_ops().items()
    if not (op.view or op.conversion or op.source or op.replicas or op.indices)
}


def undoes_itself(case: Case) -> bool:
    (x,) = case.operands()
    with np.errstate(all="ignore"):
        y = case.op.run(x)
        if (y.shape, y.dtype) != (x.shape, x.dtype):
            return False
        return np.array_equal(case.op.run(y), x, equal_nan=x.dtype.kind == "f")


@pytest.mark.parametrize("name", MAPS)
def test_an_op_is_an_involution_where_it_undoes_itself_on_all_samples(name: str) -> None:
    cases = list(sample_cases([MAPS[name]]))
    unary = all(len(c.types) == 1 for c in cases)
    large = [c for c in cases if unary and c.types[0].bytes > 8]
    assert bool(large and all(map(undoes_itself, large))) == MAPS[name].involution
