"""Elementwise functions: powers, roots, selection, rounding, trigonometry."""

from __future__ import annotations

from math import log as ln
from math import pi

from graphc.builder import Builder, Operand, Value
from graphc.op import require
from graphc.ops.composites.reductions import truth
from graphc.ops.composites.support import floats
from graphc.ops.registry import composite
from graphc.ops.unary import Cast
from graphc.types import DType, broadcast_types, dtype_named


@composite
def cast(f: Builder, x: Operand, dtype: DType | str) -> Value:
    """`y = x` converted to `dtype`, a dtype or its name; x itself where it has it"""
    target = dtype_named(dtype) if isinstance(dtype, str) else dtype
    value = f.lift(x)
    return value if value.dtype == target else f.add(Cast(target), (value,))


# -- powers and roots ----------------------------------------------------------------------------


@composite
def power(f: Builder, a: Operand, b: Operand) -> Value:
    """`y = a ^ b`; a small whole exponent is multiplied out, so that integers stay integers"""
    if isinstance(a, Value) and not isinstance(b, Value):
        match float(b):
            case 0.5:
                return f.sqrt(a)
            case -1.0:
                return f.reciprocal(a)
            case n if n.is_integer() and 0 <= n <= (8 if a.dtype.kind == "f" else 64):
                base = floats(f, a) if isinstance(b, float) else a
                return _multiplied(f, base, int(n))
    return f.binary("pow", a, b)


def _multiplied(f: Builder, x: Value, n: int) -> Value:
    """x^n by squaring."""
    y = None
    while n:
        if n % 2:
            y = x if y is None else y * x
        n //= 2
        x = x * x if n else x
    return f.ones_like(x) if y is None else y


@composite
def square(f: Builder, x: Operand) -> Value:
    """`y = x^2`"""
    value = f.lift(x)
    return value * value


@composite
def reciprocal(f: Builder, x: Operand) -> Value:
    """`y = 1 / x`"""
    return 1 / floats(f, x)


@composite
def rsqrt(f: Builder, x: Operand) -> Value:
    """`y = 1 / sqrt(x)`"""
    return 1 / f.sqrt(x)


@composite
def cbrt(f: Builder, x: Operand) -> Value:
    """`y = x^(1/3)`, with the sign of x; its gradient is not finite at 0"""
    value = floats(f, x)
    return f.sign(value) * f.abs(value) ** (1 / 3)


@composite
def hypot(f: Builder, a: Operand, b: Operand) -> Value:
    """`y = sqrt(a^2 + b^2)`"""
    return f.sqrt(f.square(a) + f.square(b))


# -- exponentials and logarithms -----------------------------------------------------------------


@composite
def exp2(f: Builder, x: Operand) -> Value:
    """`y = 2^x`"""
    return f.exp(floats(f, x) * ln(2))


@composite
def log2(f: Builder, x: Operand) -> Value:
    """`y` is the logarithm of x to base 2"""
    return f.log(x) * (1 / ln(2))


@composite
def log10(f: Builder, x: Operand) -> Value:
    """`y` is the logarithm of x to base 10"""
    return f.log(x) * (1 / ln(10))


@composite
def logaddexp(f: Builder, a: Operand, b: Operand) -> Value:
    """`y = log(e^a + e^b)`, without overflow"""
    x, y = f.match(a, b)
    return floats(f, y) + f.softplus(x - y)


# -- selection -----------------------------------------------------------------------------------


@composite
def where(f: Builder, condition: Operand, a: Operand, b: Operand) -> Value:
    """`y = a where condition, else b`, all three broadcast; the arm not taken has no influence"""
    c = truth(f, condition)
    x, y = f.match(a, b)
    shape, extents = broadcast_types(c.type, x.type)
    return f.select(*(f.broadcast_to(v, shape, extents) for v in (c, x, y)))


@composite
def clip(f: Builder, x: Operand, low: Operand | None = None, high: Operand | None = None) -> Value:
    """`y = min(max(x, low), high)`; None leaves a side open"""
    value = f.lift(x)
    if low is not None:
        value = f.maximum(value, low)
    return value if high is None else f.minimum(value, high)


# -- rounding and tests --------------------------------------------------------------------------


@composite
def ceil(f: Builder, x: Operand) -> Value:
    """`y` is the smallest integer >= x"""
    value = f.lift(x)
    return value if value.dtype.kind in "iub" else -f.floor(-value)


@composite
def trunc(f: Builder, x: Operand) -> Value:
    """`y` is x without its fraction"""
    value = f.lift(x)
    if value.dtype.kind in "iub":
        return value
    return f.select(f.gt(value, 0), f.floor(value), f.ceil(value))


@composite
def isnan(f: Builder, x: Operand) -> Value:
    """`y` is whether x is NaN"""
    value = f.lift(x)
    return f.ne(value, value)


@composite
def isinf(f: Builder, x: Operand) -> Value:
    """`y` is whether x is infinite"""
    return f.eq(f.abs(floats(f, x)), float("inf"))


# -- trigonometry --------------------------------------------------------------------------------


@composite
def tan(f: Builder, x: Operand) -> Value:
    """`y = sin x / cos x`"""
    return f.sin(x) / f.cos(x)


@composite
def arctan(f: Builder, x: Operand) -> Value:
    """`y` is the angle whose tangent is x"""
    return f.arctan2(floats(f, x), 1.0)


@composite
def arcsin(f: Builder, x: Operand) -> Value:
    """`y` is the angle in [-pi/2, pi/2] whose sine is x"""
    value = floats(f, x)
    return f.arctan2(value, f.sqrt((1 - value) * (1 + value)))


@composite
def arccos(f: Builder, x: Operand) -> Value:
    """`y` is the angle in [0, pi] whose cosine is x"""
    value = floats(f, x)
    return f.arctan2(f.sqrt((1 - value) * (1 + value)), value)


@composite
def sinh(f: Builder, x: Operand) -> Value:
    """`y = (e^x - e^-x) / 2`, exact near 0"""
    value = floats(f, x)
    return 0.5 * (f.expm1(value) - f.expm1(-value))


@composite
def cosh(f: Builder, x: Operand) -> Value:
    """`y = (e^x + e^-x) / 2`"""
    value = floats(f, x)
    return 0.5 * (f.exp(value) + f.exp(-value))


@composite
def arcsinh(f: Builder, x: Operand) -> Value:
    """`y = log(x + sqrt(x^2 + 1))`, exact near 0"""
    value = floats(f, x)
    positive, square = f.gt(value, 0), value * value
    size = f.select(positive, value, -value)  # not abs, whose gradient at 0 is 0
    y = f.log1p(size + square / (1 + f.sqrt(square + 1)))
    return f.select(positive, y, -y)


@composite
def arccosh(f: Builder, x: Operand) -> Value:
    """`y = log(x + sqrt(x^2 - 1))`, for x >= 1"""
    value = floats(f, x)
    return f.log(value + f.sqrt((value - 1) * (value + 1)))


@composite
def arctanh(f: Builder, x: Operand) -> Value:
    """`y = log((1 + x) / (1 - x)) / 2`"""
    value = floats(f, x)
    return 0.5 * (f.log1p(value) - f.log1p(-value))


@composite
def deg2rad(f: Builder, x: Operand) -> Value:
    """`y = x * pi / 180`"""
    return floats(f, x) * (pi / 180)


@composite
def rad2deg(f: Builder, x: Operand) -> Value:
    """`y = x * 180 / pi`"""
    return floats(f, x) * (180 / pi)


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
