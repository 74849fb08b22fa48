"""What a nest means, in NumPy: every statement at once for all cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from graphc.ir.types import DType
from graphc.lowering.kernel.code import (
    Access,
    Apply,
    AxisIndex,
    Check,
    Load,
    Nest,
    Number,
    RowReduction,
    Statement,
    Store,
)

Array = np.ndarray[Any, np.dtype[Any]]
FUNCTIONS: Mapping[str, Any] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "exp": np.exp,
    "sqrt": np.sqrt,
    "maximum": np.maximum,
    "minimum": np.minimum,
}


def run_nest(nest: Nest, memory: Sequence[Array]) -> None:
    """Run a nest over flat arrays, one per parameter."""
    registers: dict[int, Array] = {}
    for phase in nest.phases:
        columns = nest.columns if phase.per_column else (1,) * len(nest.columns)
        for statement in phase.code:
            _run(statement, registers, memory, nest, (*nest.rows, *columns))


def _run(
    statement: Statement, registers: dict[int, Array], memory: Sequence[Array], nest: Nest,
    shape: tuple[int, ...],
) -> None:  # fmt: skip
    match statement:
        case Load(target, access):
            where = _where(access, registers, shape)
            registers[target] = memory[access.slot][where]
        case Number(target, value, dtype):
            registers[target] = np.asarray(value, dtype.numpy)
        case AxisIndex(target, axis):
            registers[target] = np.indices(shape)[axis] if shape else np.asarray(0)
        case Apply(target, function, arguments, dtype):
            registers[target] = applied(function, [registers[k] for k in arguments], dtype)
        case Check(target, source, limit):
            registers[target] = np.clip(registers[source], 0, limit - 1)
        case RowReduction():
            x = np.broadcast_to(registers[statement.source], shape)
            registers[statement.target] = folded(statement, x, len(nest.rows))
        case Store(access, source):
            x = np.broadcast_to(registers[source], shape)
            where = _where(access, registers, shape)
            if statement.add:
                np.add.at(memory[access.slot], where, x)
            else:
                memory[access.slot][where] = x


def applied(function: str, xs: Sequence[Array], dtype: DType) -> Array:
    """A function on arrays, in f32 for half precision."""
    wide = [x.astype(np.float32) if dtype.kind == "f" and dtype.bytes == 2 else x for x in xs]
    with np.errstate(all="ignore"):
        return np.asarray(FUNCTIONS[function](*wide)).astype(dtype.numpy)


def folded(fold: RowReduction, x: Array, rows: int) -> Array:
    """A fold over all axes but the first `rows`, in twice the precision."""
    over = tuple(range(rows, x.ndim))
    if prod(x.shape[rows:]) == 0:
        shape = (*x.shape[:rows], *(1 for _ in over))
        return np.full(shape, fold.first, fold.dtype.numpy)
    wide = x.astype(np.float64) if fold.dtype.kind == "f" else x
    with np.errstate(all="ignore"):
        match fold.kind:
            case "sum":
                made = np.sum(wide, axis=over, keepdims=True, dtype=wide.dtype)
            case "max":
                made = np.max(wide, axis=over, keepdims=True)
            case "min":
                made = np.min(wide, axis=over, keepdims=True)
        return np.asarray(made).astype(fold.dtype.numpy)


def _where(access: Access, registers: Mapping[int, Array], shape: tuple[int, ...]) -> Array:
    where = np.full(shape, access.offset, np.int64)
    for axis, stride in enumerate(access.strides):
        along = [1] * len(shape)
        along[axis] = shape[axis]
        where += (np.arange(shape[axis]) * stride).reshape(along)
    if access.row is not None:
        where = where + registers[access.row].astype(np.int64) * access.step
    return where
