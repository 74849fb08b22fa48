"""The inverses of erf and its relatives, computed in f64, to their last digits at both ends.

The first guess is S. Winitzki's ("A handy approximation for the error function and its inverse",
2008), of three digits. Near 0, Halley's method on erf makes them all; far out, Newton's method on
the logarithm of erfc, which is nearly a parabola there.
"""

from __future__ import annotations

from math import inf, pi, sqrt

from graphc.ir.builder import Builder, Operand, Value
from graphc.ir.registry import composite, scipy_ufunc
from graphc.ops.composites.error_functions import erfcx
from graphc.ops.composites.support import in_f64

_WINITZKI = 0.147
_NEAR = 0.5  # of erf(y), below which erf tells y better than erfc
_TINY = 1e-9  # of erf(y), below which it is y * 2 / sqrt(pi) to the last digit
_HALLEY, _NEWTON = 2, 3  # steps, each of which makes three and two times as many digits


def _guess(f: Builder, z: Value) -> Value:
    """y >= 0 with erfc(y) = z, to three digits, 0 < z <= 1."""
    logarithm = f.log(z) + f.log1p(1.0 - z)  # of 1 - erf(y)^2
    t = logarithm * 0.5 + 2 / (pi * _WINITZKI)
    return f.sqrt(f.maximum(f.sqrt(t * t - logarithm * (1 / _WINITZKI)) - t, 0.0))


def _size(f: Builder, a: Value, z: Value) -> Value:
    """y >= 0 with erf(y) = a and erfc(y) = z. NaN unless 0 <= z <= 1."""
    guess = _guess(f, z)
    near = f.minimum(guess, 1.0)
    for _ in range(_HALLEY):
        step = (f.erf(near) - a) * f.exp(near * near) * (sqrt(pi) / 2)
        near = near - step / (near * step + 1.0)
    far = f.clip(guess, 0.25, 30.0)
    for _ in range(_NEWTON):
        scaled = erfcx(f, far)  # erfc(y) e^(y^2)
        far = far + (f.log(scaled) - far * far - f.log(z)) * scaled * (sqrt(pi) / 2)
    y = f.select(f.lt(a, _NEAR), near, far)
    return f.select(f.eq(z, 0.0), f.full_like(y, inf), y)


def _bell_inverse(f: Builder, y: Value, z: Value) -> Value:
    """e^(y^2) of y >= 0 and z = erfc(y)."""
    ratio = erfcx(f, y) / z
    return f.select(f.eq(z, 0.0), f.full_like(ratio, inf), ratio)


def _parts(f: Builder, x: Value) -> tuple[Value, Value]:
    """|x| and 1 - |x|."""
    a = f.abs(x)
    return a, 1.0 - a


def _erfinv(f: Builder, x: Value) -> Value:
    a, z = _parts(f, x)
    y = _size(f, a, z)
    return f.select(f.lt(a, _TINY), x * (sqrt(pi) / 2), f.select(f.lt(x, 0.0), -y, y))


def _erfinv_slope(f: Builder, x: Value) -> Value:
    a, z = _parts(f, x)
    return _bell_inverse(f, _size(f, a, z), z) * (sqrt(pi) / 2)


def _shorter(f: Builder, z: Value) -> Value:
    """What erfc leaves on the side of it that is the shorter one."""
    return f.select(f.gt(z, 1.0), 2.0 - z, z)


def _erfcinv(f: Builder, z: Value) -> Value:
    small = _shorter(f, z)
    y = _size(f, 1.0 - small, small)
    return f.select(f.gt(z, 1.0), -y, y)


def _erfcinv_slope(f: Builder, z: Value) -> Value:
    small = _shorter(f, z)
    return _bell_inverse(f, _size(f, 1.0 - small, small), small) * (-sqrt(pi) / 2)


def _ndtri(f: Builder, p: Value) -> Value:
    return _erfcinv(f, p * 2.0) * -sqrt(2)


def _ndtri_slope(f: Builder, p: Value) -> Value:
    return _erfcinv_slope(f, p * 2.0) * (-2 * sqrt(2))


# -- composites ------------------------------------------------------------------------------------


@scipy_ufunc("erfinv")
@composite
def erfinv(f: Builder, x: Operand) -> Value:
    """`y` is the number with erf(y) = x; infinite at -1 and 1, NaN beyond"""
    return in_f64(f, _erfinv, x, slopes=[_erfinv_slope])


@scipy_ufunc("erfcinv")
@composite
def erfcinv(f: Builder, z: Operand) -> Value:
    """`y` is the number with erfc(y) = z; infinite at 0 and 2, NaN beyond"""
    return in_f64(f, _erfcinv, z, slopes=[_erfcinv_slope])


@scipy_ufunc("ndtri")
@composite
def ndtri(f: Builder, p: Operand) -> Value:
    """`y` is the number below which a share p of a standard normal distribution lies"""
    return in_f64(f, _ndtri, p, slopes=[_ndtri_slope])
