"""Ops that keep the entries of a value, and only change its placement or whose value it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphc.ir.dims import letters
from graphc.ir.op import Op
from graphc.ir.types import TensorType

if TYPE_CHECKING:
    from graphc.ir.op import Array


class Carried(Op):
    """An op whose result has the same entries as its operand."""

    def infer(self, *types: TensorType) -> TensorType:
        return TensorType(types[0].shape, types[0].dtype)

    def dims(self, *types: TensorType) -> str:
        rule = letters(types[0].rank)
        return f"{rule} -> {rule}"

    def run(self, *xs: Array) -> Array:
        return xs[0].copy()

    @classmethod
    def samples(cls) -> Sequence[tuple[Op, str]]:
        return []
