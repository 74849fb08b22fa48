"""Variables with a copy on every replica: what the copies come to, and what they are of a value.

how: 'sum', 'mean', 'only_first_replica' (see graphc.ir.aggregation), or 'none': each replica keeps
its own, and all of them together are one array with a leading dim.
"""

from __future__ import annotations

from math import prod
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphc.ir.placement import Axis, Mesh, Varying
from graphc.ir.types import TensorType
from graphc.support.errors import GraphcError

Array: TypeAlias = NDArray[Any]


class HasShape(Protocol):
    """An array, or something that will be one."""

    @property
    def shape(self) -> tuple[int, ...]: ...


def copy_axes(t: TensorType, mesh: Mesh) -> tuple[Axis, ...]:
    """The axes along which every device has a copy of its own."""
    return tuple(a for a in mesh.space if t.placement[a.name] == Varying())


def copy_count(t: TensorType, mesh: Mesh) -> int:
    """How many copies there are; 1 for a variable with one value."""
    return prod(a.size for a in copy_axes(t, mesh))


def copy_at(t: TensorType, mesh: Mesh, rank: int) -> int:
    """The number of the copy that a rank has (of its part of it)."""
    at, index = mesh.coordinates(rank), 0
    for axis in copy_axes(t, mesh):
        index = index * axis.size + at[axis.name]
    return index


def joined(copies: Array, how: str) -> Array:
    """One value of the copies, which lie along the first dim."""
    match how:
        case "sum":
            return np.asarray(copies.sum(axis=0, dtype=copies.dtype))
        case "mean":
            wide = np.float32 if copies.dtype.itemsize < 4 else copies.dtype
            return np.asarray(copies.astype(wide).mean(axis=0)).astype(copies.dtype)
        case "only_first_replica":
            return np.asarray(copies[0])
        case _:
            return copies


def copy_of(value: Array, index: int, rank: int, how: str) -> Array:
    """What one copy is of a value, so that the copies come to it: a sum is on the first, undivided.

    rank: the number of dims of the variable; a value with one more has all copies.
    """
    if value.ndim > rank:
        return np.asarray(value[index])
    return np.zeros_like(value) if how == "sum" and index else value


def has_all(value: HasShape, t: TensorType, mesh: Mesh) -> bool:
    """Whether a value is the copies of a variable, as many as there are on the mesh."""
    return bool(copy_axes(t, mesh)) and value.shape == (copy_count(t, mesh), *t.shape)


def check_copies(name: str, value: HasShape, t: TensorType, count: int) -> bool:
    """Whether a value holds a copy for every replica. Raises G0535 for another number of them."""
    if len(value.shape) != t.rank + 1 or value.shape[1:] != t.shape:
        return False
    if value.shape[0] != count:
        raise GraphcError(
            "G0535",
            f"'{name}' has a copy for each of {value.shape[0]} replicas, but this run has {count}",
            help="give one value for all, load it where there are as many replicas, "
            "or declare how the copies are combined: on='read'",
        )
    return True


def how_joined(dtype_kind: str, aggregation: str, on: str) -> str:
    """How the copies of a variable come to one value.

    Without an aggregation of its own a variable has copies only where replicas step alone: floats
    are averaged, and of counters each replica has the same.
    """
    if on != "write":
        return aggregation
    return "mean" if dtype_kind == "f" else "only_first_replica"
