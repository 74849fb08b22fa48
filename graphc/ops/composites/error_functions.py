"""erfc and its relatives, with small values to their last digits: computed in f64.

The rational approximations are W. J. Cody's, as in `graphc.ops.erf`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import pi, sqrt

from graphc.ir.builder import Builder, Operand, Value
from graphc.ir.registry import composite, scipy_ufunc
from graphc.ops.composites.support import horner, in_f64
from graphc.ops.erf import LARGE, MIDDLE

_FAR = 30.0  # e^(-30^2) is 0 in f64

# -- values ----------------------------------------------------------------------------------------


def _ratio(f: Builder, parts: tuple[Sequence[float], Sequence[float]], x: Value) -> Value:
    return horner(f, x, parts[0]) / horner(f, x, parts[1])


def _bell(f: Builder, x: Value) -> Value:
    """e^(-x^2), x in two parts: the rounding error of a square would be that of an exponent."""
    size = f.minimum(f.abs(x), _FAR)
    high = f.trunc(size * 16.0) * 0.0625
    return f.exp(-high * high) * f.exp(-(size - high) * (size + high))


def _scaled(f: Builder, size: Value) -> Value:
    """e^(x^2) erfc(x) of x >= 1/2."""
    far = f.maximum(size, 4.0)
    inverse = 1.0 / (far * far)
    tail = (1 / sqrt(pi) - inverse * _ratio(f, LARGE, inverse)) / far
    return f.select(f.lt(size, 4.0), _ratio(f, MIDDLE, f.clip(size, 0.5, 4.0)), tail)


def _erfc(f: Builder, x: Value) -> Value:
    size = f.maximum(f.abs(x), 0.5)
    tail = _bell(f, size) * _scaled(f, size)
    far = f.select(f.lt(x, 0.0), 2.0 - tail, tail)
    return f.select(f.lt(f.abs(x), 0.5), 1.0 - f.erf(x), far)


def _erfcx(f: Builder, x: Value) -> Value:
    below = f.exp(x * x) * _erfc(f, f.minimum(x, 0.5))
    return f.select(f.lt(x, 0.5), below, _scaled(f, f.maximum(x, 0.5)))


def _ndtr(f: Builder, x: Value) -> Value:
    return _erfc(f, x * -sqrt(0.5)) * 0.5


def _log_ndtr(f: Builder, x: Value) -> Value:
    t = x * sqrt(0.5)
    far = f.log(_scaled(f, f.maximum(-t, 0.5)) * 0.5) - t * t
    return f.select(f.lt(x, -1.0), far, f.log1p(_erfc(f, f.maximum(t, -1.0)) * -0.5))


# -- derivatives -----------------------------------------------------------------------------------


def _erfc_slope(f: Builder, x: Value) -> Value:
    return _bell(f, x) * (-2 / sqrt(pi))


def _erfcx_slope(f: Builder, x: Value) -> Value:
    # 2x erfcx(x) - 2/sqrt(pi), whose terms cancel for large x: there it is -r / x^2 of the tail.
    near = 2.0 * x * _erfcx(f, x) - 2 / sqrt(pi)
    far = f.maximum(x, 4.0)
    inverse = 1.0 / (far * far)
    return f.select(f.lt(x, 4.0), near, -2.0 * inverse * _ratio(f, LARGE, inverse))


def _ndtr_slope(f: Builder, x: Value) -> Value:
    return _bell(f, x * sqrt(0.5)) * (1 / sqrt(2 * pi))


def _log_ndtr_slope(f: Builder, x: Value) -> Value:
    t = x * sqrt(0.5)
    far = sqrt(2 / pi) / _scaled(f, f.maximum(-t, 0.5))
    near = _ndtr_slope(f, x) / _ndtr(f, f.maximum(x, -1.0))
    return f.select(f.lt(x, -1.0), far, near)


# -- composites ------------------------------------------------------------------------------------


@scipy_ufunc("erfc")
@composite
def erfc(f: Builder, x: Operand) -> Value:
    """`y = 1 - erf(x)`, small values to their last digits"""
    return in_f64(f, _erfc, x, slopes=[_erfc_slope])


@scipy_ufunc("erfcx")
@composite
def erfcx(f: Builder, x: Operand) -> Value:
    """`y = e^(x^2) * erfc(x)`, which is 1 / (x sqrt(pi)) of large x"""
    return in_f64(f, _erfcx, x, slopes=[_erfcx_slope])


@scipy_ufunc("ndtr")
@composite
def ndtr(f: Builder, x: Operand) -> Value:
    """`y = erfc(-x / sqrt 2) / 2`: the share of a standard normal distribution below x"""
    return in_f64(f, _ndtr, x, slopes=[_ndtr_slope])


@scipy_ufunc("log_ndtr")
@composite
def log_ndtr(f: Builder, x: Operand) -> Value:
    """`y = log(ndtr(x))`, exact at both ends"""
    return in_f64(f, _log_ndtr, x, slopes=[_log_ndtr_slope])
