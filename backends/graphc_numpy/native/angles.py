"""The angle of a point.

The smaller coordinate over the larger one is between 0 and 1; above tan(pi/8) it is turned by pi/4.
The polynomial is an own one, made as those of `exponentials`.
"""

from __future__ import annotations

from math import inf, nan

from llvmlite import ir

from graphc_numpy.native.terms import Term, horner, outlined

# arctan(t) = t + t^3 * p(t^2) for |t| <= tan(pi/8), relative error 1.3e-18
_ARCTAN = (-0.01790870364997347, 0.038065891825361915, -0.050393561819912704, 0.05847900655093101,
           -0.0666310562445801, 0.07692060358592388, -0.09090897766491403, 0.11111110783815083,
           -0.14285714280205686, 0.1999999999995372, -0.333333333333332)  # fmt: skip
_QUARTER = (1.5707963267948966, 6.123233995736766e-17)  # pi/2
_STEEP = 0.4142135623730951


def arctan2(y: Term, x: Term) -> Term:
    """From -pi to pi; in f32 by way of f64."""
    if y.double:
        return _angle(y, x)
    a, b = (t.to(ir.DoubleType()) for t in (y, x))
    return outlined("arctan2", _angle, a, b).to(ir.FloatType())


def _angle(y: Term, x: Term) -> Term:
    tall = abs(y) > abs(x)
    small, large = tall.choose(abs(x), abs(y)), tall.choose(abs(y), abs(x))
    both = small.equals(inf)
    small, large = both.choose(1.0, small), both.choose(1.0, large)
    scale = (large > 2.0**1000).choose(small.constant(2.0**-60), (large < 2.0**-900).choose(small.constant(2.0**100), 1.0))
    small, large = small * scale, large.equals(0.0).choose(1.0, large * scale)
    steep = small > large * _STEEP
    top = steep.choose(small - large, small)
    t = top / steep.choose(small + large, large)
    z = t * t
    r = horner(z, _ARCTAN).fma(t * z, t)
    # quarters * pi/2 +- r, with pi/2 in two parts
    eighth = steep.choose(r.constant(0.5), 0.0)
    left = x.bits() < 0
    sign = tall.choose(r.constant(-1.0), 1.0)
    turn = tall.choose(1.0 - eighth, eighth)
    sign, turn = left.choose(-sign, sign), left.choose(2.0 - turn, turn)
    angle = turn.fma(_QUARTER[0], sign.fma(r, turn * _QUARTER[1]))
    angle = (x.is_nan() | y.is_nan()).choose(nan, angle)
    return angle.called("copysign", y)
