"""Vectors of equal lanes, which LLVM has words for."""

from __future__ import annotations

from functools import lru_cache

from llvmlite import ir


class Alike(ir.Constant):  # type: ignore[misc]
    """A vector of equal lanes that LLVM has a word for: written out, these are half of all text."""

    def __init__(self, t: ir.VectorType, lane: ir.Constant, word: str) -> None:
        self.type, self.word = t, word
        self.constant = (lane,) * t.count

    def _get_reference(self) -> str:
        return self.word


@lru_cache(maxsize=4096)
def alike(value: float | int | bool, sign: float, kind: str, t: ir.VectorType) -> Alike:
    """A number in every lane: constants and types know their text, so that each is made once.

    sign, kind: 0.0 and -0.0, or 1 and True, would be found for each other
    """
    lane = ir.Constant(t.element, value)
    zero = value == 0 and sign > 0
    return Alike(t, lane, "zeroinitializer" if zero else f"splat ({lane})")
