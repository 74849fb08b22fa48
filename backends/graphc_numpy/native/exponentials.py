"""e^x, e^x - 1, tanh.

The argument is reduced by a multiple of ln 2 that is held in two parts, so that the product with the
high part is exact (W. J. Cody and W. Waite, "Software Manual for the Elementary Functions", 1980).
The polynomials are own ones: the largest relative error on the reduced interval was made small in
60-digit arithmetic (least squares with Lawson's weights), and the coefficients were rounded one
after the other, from the lowest power on, those that remained being fitted anew.
"""

from __future__ import annotations

from graphc_numpy.native.terms import Term, horner

_LOG2_E = 1.4426950408889634

# -- f32 -------------------------------------------------------------------------------------------

# e^r = 1 + r + r^2 * q(r) on |r| <= ln(2)/2, relative error 3.2e-9
_EXP32 = (0.001382316229864955, 0.008368822745978832, 0.04166823998093605, 0.1666651964187622,
          0.4999999403953552)  # fmt: skip
_LN2_HIGH32, _LN2_LOW32 = 0.693145751953125, 1.428606765330187e-06
_MAGIC32 = 1.5 * 2**23  # a float that is added to this one is rounded to an integer

# tanh(x) = x + x^3 * p(x^2) on |x| <= 0.55, relative error 3.7e-8
_TANH32 = (0.016438130289316177, -0.0526721328496933, 0.133207306265831, -0.3333294689655304)


def _exp32_parts(x: Term) -> tuple[Term, Term]:
    """(p, n): e^x = p * 2^n for |x| < 2^20; n is an integer."""
    shifted = x.fma(_LOG2_E, _MAGIC32)
    n = shifted - _MAGIC32
    r = n.fma(-_LN2_LOW32, n.fma(-_LN2_HIGH32, x))
    p = horner(r, _EXP32).fma(r * r, r) + 1.0
    return p, shifted.bits() - 0x4B400000


def _power_of_two32(n: Term) -> Term:
    """2^n for -126 <= n <= 127."""
    return ((n + 127) << 23).from_bits()


def exp32(x: Term) -> Term:
    x = (x > 89.0).choose(89.0, x)
    x = (x < -104.0).choose(-104.0, x)  # a NaN is not less, and stays
    p, n = _exp32_parts(x)
    half = n >> 1  # in two steps: the first is exact, the second rounds a denormal result
    return p * _power_of_two32(half) * _power_of_two32(n - half)


def tanh32(x: Term) -> Term:
    size = abs(x)
    z = size * size
    near = horner(z, _TANH32).fma(z * size, size)
    p, n = _exp32_parts((size > 10.0).choose(10.0, size) * 2.0)
    far = 1.0 - 2.0 / p.fma(_power_of_two32(n), 1.0)
    return (size < 0.55).choose(near, far).called("copysign", x)
