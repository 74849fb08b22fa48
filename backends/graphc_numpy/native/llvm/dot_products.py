"""What products of bf16 need of a processor: an instruction for pairs, or a mode for f32."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from graphc_numpy.native.llvm import machine
from graphc_numpy.native.llvm.vectors import INT32, VOID, Printer

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


def without_subnormals(p: Printer) -> Callable[[], None]:
    """Take subnormal numbers for 0 from here on, in operands and in results. It stands at the entry
    of a function; what is returned prints the way back.

    Only for x86-64: other processors keep subnormal numbers.
    """
    if machine.target().family != "x86":
        return lambda: None
    b = p.b
    before, changed = b.alloca(INT32), b.alloca(INT32)
    p.call("llvm.x86.sse.stmxcsr", [before], VOID)
    b.store(b.or_(b.load(before, typ=INT32), ir.Constant(INT32, _FLUSHED)), changed)
    p.call("llvm.x86.sse.ldmxcsr", [changed], VOID)

    def restore() -> None:
        p.call("llvm.x86.sse.ldmxcsr", [before], VOID)

    return restore


__all__ = ["dots", "without_subnormals"]
