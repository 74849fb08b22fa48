"""A backend of its own package: a stack machine over Python lists of floats, for some ops.

It shows how little a backend needs: arrays of its own kind, a kernel per op that it knows, and
NotImplemented for the rest, which then runs on the reference kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc.ir.op import Op
from graphc.runtime.backends.executor import KernelBackend


@dataclass(frozen=True)
class Plain:
    """Numbers in row-major order, with the shape and dtype that they have as an array."""

    numbers: tuple[Any, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def to_device(x: np.ndarray) -> Plain:
    return Plain(tuple(x.reshape(-1).tolist()), x.shape, x.dtype)


def to_host(x: Plain) -> np.ndarray:
    return np.array(x.numbers, dtype=x.dtype).reshape(x.shape)


UNARY: dict[str, Callable[[float], float]] = {
    "neg": lambda a: -a,
    "abs": abs,
    "tanh": math.tanh,
    "exp": math.exp,
    "floor": math.floor,
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "maximum": lambda a, b: a if a > b or a != a else b,
    "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
}


def elementwise(op: Op, xs: Sequence[Plain]) -> Any:
    """The op entry by entry; NotImplemented for one that is not known, or not in this dtype."""
    kinds = {x.dtype.kind for x in xs}
    if op.name == "select":
        arms = zip(*(x.numbers for x in xs), strict=True)
        made = [a if c else b for c, a, b in arms]
        return Plain(tuple(made), xs[0].shape, xs[1].dtype)
    if kinds != {"f"}:
        return NotImplemented
    if op.name in UNARY:
        made = [UNARY[op.name](a) for a in xs[0].numbers]
    elif op.name in BINARY:
        pairs = zip(xs[0].numbers, xs[1].numbers, strict=True)
        made = [BINARY[op.name](a, b) for a, b in pairs]
    else:
        return NotImplemented
    dtype = np.dtype(bool) if made and isinstance(made[0], bool) else xs[0].dtype
    return Plain(tuple(made), xs[0].shape, dtype) if made else NotImplemented


def transpose(op: Any, x: Plain) -> Plain:
    return to_device(to_host(x).transpose(op.perm))


def reshape(op: Any, x: Plain) -> Plain:
    return Plain(x.numbers, op.shape, x.dtype)


def kernel(op: Op, xs: Sequence[Plain]) -> Any:
    if op.name == "transpose":
        return transpose(op, xs[0])
    if op.name == "reshape":
        return reshape(op, xs[0])
    return elementwise(op, xs) if op.elementwise else NotImplemented


BACKEND = KernelBackend("plain", kernel, "stack machine", to_device, to_host)
