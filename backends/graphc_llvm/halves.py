"""f16 to f32 and back: by the machine's instruction, or with integer operations if it has none. And
f32 rounded to bf16.

Without the instruction for f16, LLVM would call a function of a compiler's library, which may be
missing in the process. The method is F. Giesen's ("Half to float done quick", "float to half",
2012).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir

if TYPE_CHECKING:
    from graphc_llvm.vectors import Printer

_SINGLE, _HALF = ir.FloatType(), ir.HalfType()


def widened(p: Printer, x: ir.Value) -> ir.Value:
    """A half as f32: always exact."""
    if _converts(p):
        return p.b.fpext(x, _like(x, _SINGLE))
    b, t = p.b, _like(x, ir.IntType(32))
    bits = b.zext(b.bitcast(x, _like(x, ir.IntType(16))), t)
    size = b.shl(b.and_(bits, p.number(0x7FFF, t)), p.number(13, t))
    normal = b.add(size, p.number((127 - 15) << 23, t))
    # A denormal number: with the exponent that it should have, less the bit that is then too much.
    least = p.number(113 << 23, t)
    single = _like(x, _SINGLE)
    tiny = b.fsub(b.bitcast(b.add(normal, p.number(1 << 23, t)), single), b.bitcast(least, single))
    magnitude = b.select(b.icmp_unsigned("<", normal, least), b.bitcast(tiny, t), normal)
    endless = b.icmp_unsigned(">=", size, p.number(0x7C00 << 13, t))
    magnitude = b.select(endless, b.add(normal, p.number((128 - 16) << 23, t)), magnitude)
    sign = b.shl(b.and_(bits, p.number(0x8000, t)), p.number(16, t))
    return b.bitcast(b.or_(magnitude, sign), single)


def narrowed(p: Printer, x: ir.Value) -> ir.Value:
    """The nearest half of an f32, ties to even."""
    if _converts(p):
        return p.b.fptrunc(x, _like(x, _HALF))
    b, t = p.b, _like(x, ir.IntType(32))
    bits = b.bitcast(x, t)
    size = b.and_(bits, p.number(0x7FFFFFFF, t))
    odd = b.and_(b.lshr(size, p.number(13, t)), p.number(1, t))
    rounded = b.add(b.add(size, p.number(((15 - 127) << 23) + 0xFFF, t)), odd)
    magnitude = b.lshr(rounded, p.number(13, t))
    # A number whose half is denormal is rounded by a sum with one that has the same last bit.
    least, single = p.number(126 << 23, t), _like(x, _SINGLE)
    shifted = b.fadd(b.bitcast(size, single), b.bitcast(least, single))
    tiny = b.sub(b.bitcast(shifted, t), least)
    magnitude = b.select(b.icmp_unsigned("<", size, p.number(113 << 23, t)), tiny, magnitude)
    payload = b.and_(b.lshr(size, p.number(13, t)), p.number(0x3FF, t))
    nan = b.icmp_unsigned(">", size, p.number(0x7F800000, t))
    endless = b.select(nan, b.or_(payload, p.number(0x7E00, t)), p.number(0x7C00, t))
    magnitude = b.select(b.icmp_unsigned(">=", size, p.number(143 << 23, t)), endless, magnitude)
    sign = b.and_(b.lshr(bits, p.number(16, t)), p.number(0x8000, t))
    return b.bitcast(b.trunc(b.or_(magnitude, sign), _like(x, ir.IntType(16))), _like(x, _HALF))


def rounded(p: Printer, x: ir.Value, nans: bool = True) -> ir.Value:
    """The nearest bf16 of an f32, ties to even, as an f32.

    nans: whether there may be a signaling NaN, or one with bits that bf16 does not have
    """
    b, t = p.b, _like(x, ir.IntType(32))
    bits = b.bitcast(x, t)
    odd = b.and_(b.lshr(bits, p.number(16, t)), p.number(1, t))
    up = b.add(bits, b.add(odd, p.number(0x7FFF, t)))
    if nans:
        nan = b.fcmp_unordered("uno", x, x)
        up = b.select(nan, b.or_(bits, p.number(0x400000, t)), up)
    return b.bitcast(b.and_(up, p.number(-65536, t)), x.type)


def _converts(p: Printer) -> bool:
    return p.target.instructions != "baseline"


def _like(x: ir.Value, t: ir.Type) -> Any:
    """t, in as many lanes as x has."""
    return ir.VectorType(t, x.type.count) if isinstance(x.type, ir.VectorType) else t
