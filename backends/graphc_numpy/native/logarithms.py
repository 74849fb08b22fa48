"""ln x and ln(1 + x).

x = m * 2^e with m in [sqrt(1/2), sqrt(2)): ln x = e * ln 2 + ln m, with ln 2 in two parts, as in
Cephes (S. Moshier, 1989). The polynomials are own ones, made as those of `exponentials`.
"""

from __future__ import annotations

from math import inf, nan

from graphc_numpy.native.terms import Term, horner

# -- f32 -------------------------------------------------------------------------------------------

# ln(1 + f) = f - f^2/2 + f^3 * p(f) on [sqrt(1/2) - 1, sqrt(2) - 1], relative error 7.7e-10
_LOG32 = (0.06730944663286209, -0.11659564077854156, 0.11886444687843323, -0.12408358603715897,
          0.14220227301120758, -0.16667848825454712, 0.20002073049545288, -0.25000011920928955,
          0.3333331346511841)  # fmt: skip
_LN2_HIGH32, _LN2_LOW32 = 0.693359375, -2.12194440e-4
_SMALLEST32 = 2.0**-126


def log32(x: Term) -> Term:
    tiny = x < _SMALLEST32
    bits = tiny.choose(x * 2.0**23, x).bits()
    e = (bits - 0x3F3504F3) >> 23
    f = (bits - (e << 23)).from_bits() - 1.0
    k = tiny.choose(e - 23, e).to(f.element)
    z = f * f
    y = horner(f, _LOG32).fma(f * z, k * _LN2_LOW32)
    y = k.fma(_LN2_HIGH32, f + z.fma(-0.5, y))
    return log_of_limits(x, y)


def log_of_limits(x: Term, y: Term) -> Term:
    """y = ln x, with the values at infinity, at 0, and of what has no logarithm."""
    y = (x < inf).choose(y, x)  # infinity and NaN are their own logarithms
    y = x.equals(0.0).choose(-inf, y)
    return (x < 0.0).choose(nan, y)
