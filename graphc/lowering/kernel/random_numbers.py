"""Random numbers in a kernel's code."""

from __future__ import annotations

from typing import Literal, TypeAlias

from graphc.ir.types import DType
from graphc.support.dataclass import dataclass

Distribution: TypeAlias = Literal["uniform", "normal"]
DISTRIBUTIONS: tuple[Distribution, ...] = ("uniform", "normal")


@dataclass(frozen=True, slots=True)
class RandomNumber:
    """`target` = the random number of an entry, as graphc.support.random defines it.

    The entry's number in its global tensor is `sum(index[a] * strides[a])` over the kernel's axes,
    plus `register * step` for each pair of `begins`.
    key, step: i64 registers with the stream of the draw and the step.
    """

    target: int
    kind: Distribution
    key: int
    step: int
    strides: tuple[int, ...]
    dtype: DType
    begins: tuple[tuple[int, int], ...] = ()

    @property
    def reads(self) -> tuple[int, ...]:
        """The registers that it reads."""
        return (self.key, self.step, *(register for register, _ in self.begins))
