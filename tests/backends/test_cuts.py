"""A cut of a tensor changes no entry: what `reproducible` takes for granted of every backend."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pytest
from graphc_numpy.calls.kernels import bind

import graphc.ops  # noqa: F401  registers the ops
from graphc.ir.op import Op, all_ops
from graphc.ir.types import TensorType, dtype_of

Array: TypeAlias = "np.ndarray[Any, Any]"
ENTRIES = (37, 64)
CUTS = ([0, 16, 32, 48, 64], [0, 1, 3, 10, 27, 64])
EVERY = [(name, cls) for name, cls in all_ops().items() if cls.elementwise and not cls.conversion]


def by_reference(op: Op, xs: list[Array]) -> Array:
    return np.asarray(op.run(*xs))


def by_numpy(op: Op, xs: list[Array]) -> Array:
    types = [TensorType(x.shape, dtype_of(x.dtype)) for x in xs]
    out = np.empty(xs[0].shape, op.infer(*types).dtype.numpy)
    for call in bind(op, xs, out):
        call()
    return out


def drawn(types: str, dtype: str) -> list[Array]:
    """Random operands of the kinds that a sample names."""
    rng = np.random.default_rng(0)
    found: list[Array] = []
    for kind in (t.split("[")[0] for t in types.split(", ")):
        if kind.startswith("f"):
            found.append((rng.normal(size=ENTRIES) * 3).astype(dtype))
        elif kind == "bool":
            found.append(rng.random(ENTRIES) > 0.5)
        else:
            found.append(rng.integers(0, 100, ENTRIES).astype({"i64": "i8"}.get(kind, "i4")))
    return found


@pytest.mark.parametrize(("name", "cls"), EVERY, ids=[name for name, _ in EVERY])
@pytest.mark.parametrize("run", [by_reference, by_numpy])
def test_an_op_that_works_entry_by_entry_does_so_bit_by_bit(
    name: str, cls: type[Op], run: Any
) -> None:
    for op, types in cls.samples()[:3]:
        for dtype in ("f4", "f8"):
            xs = drawn(types, dtype)
            with np.errstate(all="ignore"):
                whole = run(op, xs)
                for ends in CUTS:
                    cut = pairwise(ends)
                    parts = [run(op, [np.ascontiguousarray(x[:, a:b]) for x in xs]) for a, b in cut]
                    assert np.concatenate(parts, 1).tobytes() == whole.tobytes(), (op, dtype)
