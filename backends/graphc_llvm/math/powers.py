"""a^b = e^(b ln a), where ln a has more digits than a float, since e^y multiplies the error of y by
y.

For f32 the logarithm is computed in f64. For f64 it is a double-double: 2 artanh(s) with s = (m -
1) / (m + 1), of which the first two terms of the series are double-doubles, and the rest is a
polynomial whose coefficients were computed for graphc, as `exponentials` says.
"""

from __future__ import annotations

from math import inf, nan

from llvmlite import ir

from graphc_llvm.expressions import Expression, horner, outlined
from graphc_llvm.math.double_double import (
    Pair,
    fast_two_sum,
    product,
    total,
    two_product,
    two_sum,
)
from graphc_llvm.math.exponentials import exp, exp_of_sum
from graphc_llvm.math.logarithms import log, split

# artanh(s) = s + s^3 * (1/3 + s^2 * p(s^2)), relative error 7.6e-23
_ARTANH = (0.05990511185272725, 0.058379355161677124, 0.06668129987574649, 0.07692279272808521,
           0.09090909421175225, 0.11111111108900751, 0.14285714285721904,
           0.1999999999999999)  # fmt: skip
_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)
_LN2 = (0.6931471805598903, 5.497923018708371e-14)
_REACH = 800.0  # e^x is 0 or infinite beyond


def power(a: Expression, b: Expression) -> Expression:
    size = abs(a)
    y = _double(size, b) if a.double else _single(size, b)
    whole = b.called("floor").equals(b)
    half = b * 0.5
    odd = whole & half.called("floor").differs(half)
    y = odd.choose(y.called("copysign", a), y)
    y = ((a < 0.0) & (size < inf) & ~whole).choose(nan, y)
    one = a.equals(1.0) | b.equals(0.0) | (size.equals(1.0) & abs(b).equals(inf))
    return one.choose(1.0, y)


def _single(a: Expression, b: Expression) -> Expression:
    x, y = (t.to(ir.DoubleType()) for t in (a, b))
    return outlined("exp", exp, y * outlined("log", log, x)).to(ir.FloatType())


def _double(a: Expression, b: Expression) -> Expression:
    high, low = _logarithm(a)
    high = a.equals(0.0).choose(-inf, (a < inf).choose(high, a))
    y = high * b
    rest = low.fma(b, high.fma(b, -y))
    near = abs(y) < _REACH
    return exp_of_sum(y.at_most(_REACH).at_least(-_REACH), near.choose(rest, 0.0))


def _logarithm(x: Expression) -> Pair:
    """ln x of a finite x above 0."""
    m, e = split(x)
    f, below = m - 1.0, two_sum(m, 1.0)
    high = f / below[0]
    s = fast_two_sum(high, (high.fma(-below[0], f) - high * below[1]) / below[0])
    z = product(s, s)
    factor = fast_two_sum(
        m.constant(_TWO_THIRDS[0]), horner(z[0], _ARTANH) * z[0] * 2.0 + _TWO_THIRDS[1]
    )
    cubic = product(product(z, s), factor)
    part = total((s[0] + s[0], s[1] + s[1]), cubic)
    k = e.to(m.element)
    whole = two_sum(k * _LN2[0], part[0])
    middle = two_product(k, _LN2[1])
    return fast_two_sum(whole[0], whole[1] + (part[1] + middle[0]))
