"""What products of bf16 need of a processor: an instruction for pairs, or a mode for f32."""

from __future__ import annotations

from graphc_llvm.vectors import INT32, VOID, Printer
from llvmlite import ir

from graphc.ir.types import I32
from graphc_numpy.native import machine

_FLUSHED = 1 << 15 | 1 << 6  # of MXCSR: of results, and of operands


class _BFloat(ir.Type):  # type: ignore[misc]
    """LLVM's bf16, which llvmlite has no word for."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


def dots(p: Printer, x: ir.Value, y: ir.Value, sums: ir.Value) -> ir.Value:
    """sums + x[1] * y[1] + x[0] * y[0] of 16 words that hold two bf16 (VDPBF16PS)."""
    pairs = ir.VectorType(_BFloat(), 2 * sums.type.count)
    both = [p.b.bitcast(v, pairs) for v in (x, y)]
    return p.call("llvm.x86.avx512bf16.dpbf16ps.512", [sums, *both], sums.type)


def modes(p: Printer) -> ir.Value | None:
    """Two words of the stack, at the entry of a function: the mode of the processor, and the one
    that takes subnormal numbers for 0, in operands and in results.

    Only for x86-64: other processors keep subnormal numbers.
    """
    if machine.target().family != "x86":
        return None
    place = p.b.alloca(INT32, 2)
    p.call("llvm.x86.sse.stmxcsr", [place], VOID)
    mode = p.b.load(place, typ=INT32)
    p.b.store(p.b.or_(mode, ir.Constant(INT32, _FLUSHED)), p.at(place, 1, I32))
    return place


def switch(p: Printer, modes: ir.Value, which: int) -> None:
    """Go on in the first or the second mode."""
    p.call("llvm.x86.sse.ldmxcsr", [p.at(modes, which, I32)], VOID)


__all__ = ["dots", "modes", "switch"]
