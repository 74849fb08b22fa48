"""Elementwise functions: powers, roots, selection, rounding, trigonometry."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import inf
from math import log as ln
from typing import TypeAlias

from graphc.ir.builder import Builder, Operand, Value
from graphc.ir.registry import array_function, composite, scipy_ufunc, ufunc
from graphc.ir.types import DType, broadcast_types, dtype_named
from graphc.ops.composites.reductions import truth
from graphc.ops.composites.support import floats, is_negative
from graphc.ops.unary import Cast

Function: TypeAlias = Callable[[Value], Value]


@composite
def cast(f: Builder, x: Operand, dtype: DType | str) -> Value:
    """`y = x` converted to `dtype`, a dtype or its name; x itself if it has that dtype"""
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
            case n if n.is_integer() and 0 <= n <= (8 if a.dtype.kind == "f" else 2**31):
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


@ufunc("cbrt")
@composite
def cbrt(f: Builder, x: Operand) -> Value:
    """`y = x^(1/3)`, with the sign of x; its gradient at 0 is infinite"""
    value = floats(f, x)
    third = value.dtype.numpy.type(1 / 3)  # what it lacks of 1/3 is made up by a factor
    below = is_negative(f, value)
    size = f.select(below, -value, value)
    ends = f.or_(f.eq(size, 0), f.eq(size, inf))
    rest = f.log(f.stop_gradient(f.select(ends, f.ones_like(size), size))) * _less(1, 3, third)
    y = size ** float(third) * (1 + rest)
    return f.select(below, -y, y)


def _less(a: int, b: int, rounded: float) -> float:
    """a / b minus a float that is near it."""
    return float(Fraction(a, b) - Fraction(float(rounded)))


@ufunc("hypot")
@composite
def hypot(f: Builder, a: Operand, b: Operand) -> Value:
    """`y = sqrt(a^2 + b^2)`, where no square overflows; its gradient at 0, 0 is 0"""
    x, y = (f.abs(floats(f, v)) for v in f.match(a, b))
    first = f.or_(f.gt(x, y), f.isnan(y))
    large, small = f.select(first, x, y), f.select(first, y, x)
    endless, one = f.not_(f.lt(large, inf)), f.ones_like(large)
    top = f.select(endless, f.zeros_like(small), small)
    ratio = top / f.select(f.or_(endless, f.eq(large, 0)), one, large)
    return large * f.sqrt(1 + ratio * ratio)


# -- exponentials and logarithms -----------------------------------------------------------------


@ufunc("exp2")
@composite
def exp2(f: Builder, x: Operand) -> Value:
    """`y = 2^x`"""
    return f.binary("pow", 2.0, floats(f, x))


@scipy_ufunc("exp10")
@composite
def exp10(f: Builder, x: Operand) -> Value:
    """`y = 10^x`"""
    return f.exp(floats(f, x) * ln(10))


@ufunc("log2")
@composite
def log2(f: Builder, x: Operand) -> Value:
    """`y` is the logarithm of x to base 2, exact for powers of 2"""
    return _logarithm(f, floats(f, x), 2.0)


@ufunc("log10")
@composite
def log10(f: Builder, x: Operand) -> Value:
    """`y` is the logarithm of x to base 10, exact for powers of 10"""
    return _logarithm(f, floats(f, x), 10.0)


def _logarithm(f: Builder, x: Value, base: float) -> Value:
    import ml_dtypes

    eps = float(ml_dtypes.finfo(x.dtype.numpy).eps)  # type: ignore[no-untyped-call]
    y = f.log(x) * (1 / ln(base))
    whole = f.round(y)
    close = f.le(f.abs(whole - y), 4 * eps * f.abs(y))
    exact = f.and_(f.and_(close, f.is_finite(y)), f.eq(f.binary("pow", base, whole), x))
    return y + f.stop_gradient(f.select(exact, whole - y, f.zeros_like(y)))


@ufunc("logaddexp")
@composite
def logaddexp(f: Builder, a: Operand, b: Operand) -> Value:
    """`y = log(e^a + e^b)`, without overflow; of equal infinities that one"""
    return _added_powers(f, a, b, f.exp, 1.0)


@ufunc("logaddexp2")
@composite
def logaddexp2(f: Builder, a: Operand, b: Operand) -> Value:
    """`y = log2(2^a + 2^b)`, without overflow; of equal infinities that one"""
    return _added_powers(f, a, b, f.exp2, ln(2))


def _added_powers(f: Builder, a: Operand, b: Operand, power: Function, unit: float) -> Value:
    """max + log(1 + base^-|a - b|): the difference is 0 where one infinity meets itself."""
    x, y = (floats(f, v) for v in f.match(a, b))
    first = f.gt(x, y)
    large, small = f.select(first, x, y), f.select(first, y, x)
    alike = f.and_(f.eq(x, y), f.eq(f.abs(x), inf))
    below = f.select(alike, f.zeros_like(large), small - large)
    more = f.log1p(power(below)) / unit if unit != 1 else f.log1p(power(below))
    return f.select(alike, 0.5 * x + 0.5 * y, large + more)


# -- selection -----------------------------------------------------------------------------------


@composite
def where(f: Builder, condition: Operand, a: Operand, b: Operand) -> Value:
    """`y = a where condition, else b`, all three broadcast; the other value has no influence"""
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


@ufunc("ceil")
@composite
def ceil(f: Builder, x: Operand) -> Value:
    """`y` is the smallest integer >= x"""
    value = f.lift(x)
    return value if value.dtype.kind in "iub" else -f.floor(-value)


@array_function("fix(x)")
@ufunc("trunc")
@composite
def trunc(f: Builder, x: Operand) -> Value:
    """`y` is x without its fraction"""
    value = f.lift(x)
    if value.dtype.kind in "iub":
        return value
    return f.select(f.gt(value, 0), f.floor(value), f.ceil(value))


@ufunc("isnan")
@composite
def isnan(f: Builder, x: Operand) -> Value:
    """`y` is whether x is NaN"""
    value = f.lift(x)
    return f.ne(value, value)


@ufunc("isinf")
@composite
def isinf(f: Builder, x: Operand) -> Value:
    """`y` is whether x is infinite"""
    return f.eq(f.abs(floats(f, x)), float("inf"))
