"""Integer division as NumPy defines it, where C and LLVM leave the result undefined.

Division rounds down; by zero it gives 0; the smallest number divided by -1 is itself.
"""

from __future__ import annotations

from llvmlite import ir

from graphc_llvm.expressions import Expression
from graphc_llvm.vectors import INT32


def floor_div(a: Expression, b: Expression, signed: bool) -> Expression:
    """floor(a / b)"""
    return _wide_floor_div(a, b) if a.element.width == 64 else _narrow_floor_div(a, b, signed)


def mod(a: Expression, b: Expression, signed: bool) -> Expression:
    """a - floor(a / b) * b; 0 if b is 0."""
    return b.equals(0).choose(0, a - floor_div(a, b, signed) * b)


def _narrow_floor_div(a: Expression, b: Expression, signed: bool) -> Expression:
    """Of integers of at most 32 bits: in f64, whose quotient is never rounded past an integer."""
    x, y = (t.to(ir.DoubleType(), signed) for t in (a, b))
    q = (x / b.equals(0).choose(1.0, y)).called("floor")
    if signed:
        top = 2.0 ** (a.element.width - 1)
        q = q.equals(top).choose(-top, q)
    return b.equals(0).choose(0, q.to(INT32).to(a.element))


def _wide_floor_div(a: Expression, b: Expression) -> Expression:
    safe = (b.equals(0) | b.equals(-1)).choose(1, b)
    q = Expression(a.p, a.p.b.sdiv(a.value, safe.value))
    rest = a - q * safe
    uneven = rest.differs(0) & ((rest ^ safe) < 0)
    floored = uneven.choose(q - 1, q)
    return b.equals(0).choose(0, b.equals(-1).choose(0 - a, floored))
