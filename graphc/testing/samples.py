"""Operands for tests: types given as text, and random values that an op accepts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from graphc.ir.op import Op, all_ops
from graphc.ir.types import DTYPES, F32, DType, TensorType, parse_types
from graphc.support.dataclass import dataclass
from graphc.support.errors import GraphcError

if TYPE_CHECKING:
    from graphc.ir.op import Array


@dataclass(frozen=True)
class Case:
    """An op with the types of its operands. seed: of the random operands."""

    op: Op
    types: tuple[TensorType, ...]
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.op!r} of {', '.join(map(str, self.types))}"

    def operands(self) -> list[Array]:
        """Random operands within the op's bounds."""
        rng = np.random.default_rng(self.seed)
        slots = enumerate(self.types)
        return [random_array(rng, t, self.op.bounds(i, self.types)) for i, t in slots]

    def with_dtype(self, dtype: DType) -> Case | None:
        """The case with its f32 operands in another dtype; None if the op does not accept it."""
        types = tuple(replace(t, dtype=dtype) if t.dtype == F32 else t for t in self.types)
        try:
            self.op.infer(*types)
        except GraphcError as error:
            if error.code != "G0202":
                raise
            return None
        return replace(self, types=types)


def random_array(
    rng: np.random.Generator, t: TensorType, bounds: tuple[float, float] = (-2.0, 2.0)
) -> Array:
    """A random tensor of a type, its entries in [low, high)."""
    low, high = bounds
    match t.dtype.kind:
        case "f":
            return np.asarray(rng.uniform(low, high, t.shape)).astype(t.dtype.numpy)
        case "b":
            return np.asarray(rng.integers(0, 2, t.shape)).astype(bool)
        case kind:
            low = max(low, 0) if kind == "u" else low
            whole = rng.integers(ceil(low), max(ceil(high), ceil(low) + 1), t.shape)
            return np.asarray(whole).astype(t.dtype.numpy)


def sample_cases(classes: Sequence[type[Op]] | None = None) -> Iterator[Case]:
    """A case for each sample of each op."""
    for cls in classes if classes is not None else all_ops().values():
        for seed, (op, types) in enumerate(cls.samples()):
            yield Case(op, parse_types(types), seed)


def typed_cases(case: Case) -> Iterator[Case]:
    """The case in every dtype that the op accepts."""
    if all(t.dtype != F32 for t in case.types):
        yield case
        return
    for dtype in DTYPES.values():
        typed = case.with_dtype(dtype)
        if typed is not None:
            yield typed
