"""Bitwise functions of integers."""

from __future__ import annotations

from graphc.ir.builder import Builder, Operand, Value
from graphc.ir.op import require
from graphc.ir.registry import composite, ufunc
from graphc.ir.types import BOOL, I32


@ufunc("invert")
@composite
def invert(f: Builder, x: Operand) -> Value:
    """`y` is x with every bit flipped; not x for a bool"""
    value = f.lift(x)
    require(value.dtype.kind in "biu", f"invert does not take {value.dtype}", code="G0202")
    match value.dtype.kind:
        case "b":
            return f.not_(value)
        case "u":
            return f.xor(value, 255)
        case _:
            return f.xor(value, -1)


@ufunc("left_shift", "bitwise_left_shift")
@composite
def shift_left(f: Builder, x: Operand, n: Operand) -> Value:
    """`y = x * 2^n` of integers; 0 if n is not a valid number of bits"""
    value, count, fits = _shifted(f, x, n)
    for step in _steps(value):
        value = f.select(f.ne(f.and_(count, step), 0), value * 2**step, value)
    return f.select(fits, value, f.zeros_like(value))


@ufunc("right_shift", "bitwise_right_shift")
@composite
def shift_right(f: Builder, x: Operand, n: Operand) -> Value:
    """`y = floor(x / 2^n)` of integers; 0 or -1 if n is not a valid number of bits"""
    value, count, fits = _shifted(f, x, n)
    zero = f.zeros_like(value)
    beyond = zero if value.dtype.kind == "u" else f.select(f.lt(value, 0), zero - 1, zero)
    for step in _steps(value):
        part = f.binary("floor_div", value, 2**step)
        value = f.select(f.ne(f.and_(count, step), 0), part, value)
    return f.select(fits, value, beyond)


def _shifted(f: Builder, x: Operand, n: Operand) -> tuple[Value, Value, Value]:
    """Both with one dtype and shape, and where the number of bits is valid."""
    a, b = f.match(x, n)
    if a.dtype == BOOL:
        a, b = f.to_dtype(a, I32), f.to_dtype(b, I32)
    require(a.dtype.kind in "iu", f"a shift does not take {a.dtype}", code="G0202")
    return a, b, f.and_(f.ge(b, 0), f.lt(b, 8 * a.dtype.bytes))


def _steps(x: Value) -> tuple[int, ...]:
    """The powers of 2 that add up to a number of bits."""
    return tuple(1 << k for k in range((8 * x.dtype.bytes).bit_length() - 1))


@composite
def integer_power(f: Builder, a: Value, b: Value) -> Value:
    """`y = a^b` of integers, which wraps around; for b < 0, 1 / a^-b rounded towards zero"""
    require(
        a.dtype.kind in "iu" and a.dtype == b.dtype, "integer_power takes integers", code="G0202"
    )
    one = f.ones_like(a)
    y, base, rest = one, a, f.maximum(b, 0)
    for k in range(8 * a.dtype.bytes - (a.dtype.kind == "i")):
        base = base * base if k else base
        y = f.select(f.ne(f.and_(rest, 2**k), 0), y * base, y)
    if a.dtype.kind == "u":
        return y
    sign = f.select(f.ne(f.and_(b, 1), 0), a, one)  # of a = 1 and a = -1
    ends = f.select(f.eq(f.abs(a), 1), sign, f.zeros_like(a))
    return f.select(f.lt(b, 0), ends, y)
