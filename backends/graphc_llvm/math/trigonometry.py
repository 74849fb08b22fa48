"""sin and cos.

x = n * pi/2 + r with |r| <= pi/4: pi/2 in three parts is subtracted with fma, of which the first
subtraction is exact (W. J. Cody and W. Waite, "Software Manual for the Elementary Functions",
1980). If n is too large for that, `payne_hanek` reduces x. The coefficients were computed for
graphc, as `exponentials` says.
"""

from __future__ import annotations

from math import inf, nan, pi

from llvmlite import ir

from graphc.support.dataclass import dataclass
from graphc_llvm.expressions import Expression, horner, outlined, rarely
from graphc_llvm.math.double_double import fast_two_sum
from graphc_llvm.math.payne_hanek import LEAST, quarters


@dataclass(frozen=True)
class _TrigonometricConstants:
    """The constants for one float type.

    sin:     sin(r) = r + r^3 * sin(r^2)
    cos:     cos(r) = 1 - r^2/2 + r^4 * cos(r^2)
    quarter: pi/2 in parts
    limit:   the largest x that is reduced with these parts
    """

    sin: tuple[float, ...]
    cos: tuple[float, ...]
    quarter: tuple[float, float, float]
    magic: float
    limit: float


# Relative errors 4.0e-9 and 1.2e-10
_SINGLE = _TrigonometricConstants(
    (-0.00019518072076607496, 0.008332188241183758, -0.16666655242443085),
    (2.4432336431345902e-05, -0.0013887309469282627, 0.04166664555668831),
    (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    1.5 * 2.0**23,
    2.0**16,
)

# 3.8e-18 and 5.7e-20
_DOUBLE = _TrigonometricConstants(
    (1.5895960780798188e-10, -2.5050742551690307e-08, 2.755731358318858e-06,
     -0.0001984126982945915, 0.008333333333321917, -0.1666666666666663),
    (-1.13587814549263e-11, 2.0875706002844176e-09, -2.7557314221204346e-07,
     2.4801587289014358e-05, -0.0013888888888873355, 0.041666666666666595),
    (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
    1.5 * 2.0**52,
    LEAST,
)  # fmt: skip


def sin(x: Expression) -> Expression:
    y = _wave(x, 0)
    return x.equals(0.0).choose(x, y)  # with its sign


def cos(x: Expression) -> Expression:
    return _wave(x, 1)


def _wave(x: Expression, turn: int) -> Expression:
    """sin(x + turn * pi/2)"""
    large = ~(abs(x) <= (_DOUBLE if x.double else _SINGLE).limit)
    if x.double:
        return _double_wave(x, turn, large)
    c = _SINGLE
    shifted = x.fma(2 / pi, c.magic)
    n = shifted - c.magic
    r = x
    for part in c.quarter:
        r = n.fma(-part, r)
    y = _in_quadrant(shifted.bits(), turn, _sin(r, None), _cos(r, None))

    def wide() -> Expression:
        z = outlined("cos" if turn else "sin", cos if turn else sin, x.to(ir.DoubleType()))
        return z.to(ir.FloatType())

    return y.rarely(large, wide)


def _double_wave(x: Expression, turn: int, large: Expression) -> Expression:
    c = _DOUBLE
    shifted = x.fma(2 / pi, c.magic)
    n = shifted - c.magic
    far = n.fma(-c.quarter[0], x)
    middle = n * c.quarter[1]
    lost = n.fma(c.quarter[1], -middle)
    r = far - middle
    rest = ((far - r) - middle) - n.fma(c.quarter[2], lost)
    n, r, rest = rarely(large, (n, r, rest), lambda: quarters(x, large))
    high, low = fast_two_sum(r, rest)
    k = (n + c.magic).bits()
    y = _in_quadrant(k, turn, _sin(high, low), _cos(high, low))
    return (abs(x) < inf).choose(y, nan)


def _sin(r: Expression, low: Expression | None) -> Expression:
    """sin(r + low)"""
    z = r * r
    y = horner(z, (_DOUBLE if r.double else _SINGLE).sin) * (z * r)
    if low is None:
        return r + y
    return r + (y + z.fma(low * -0.5, low))  # cos(r) * low


def _cos(r: Expression, low: Expression | None) -> Expression:
    """cos(r + low)"""
    z = r * r
    half = z * 0.5
    near = 1.0 - half
    y = (1.0 - near) - half  # what `near` has lost
    y = (horner(z, (_DOUBLE if r.double else _SINGLE).cos) * z).fma(z, y)
    return near + (y if low is None else y - r * low)


def _in_quadrant(n: Expression, turn: int, s: Expression, c: Expression) -> Expression:
    """sin of an angle in quadrant n + turn, from its sine and cosine in quadrant 0."""
    n = n + turn
    y = (n & 1).equals(0).choose(s, c)
    sign = (n & 2) << (62 if s.double else 30)
    return (y.bits() ^ sign).from_bits()
