"""The error function for NumPy, which does not have it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from graphc.ir.op import Array

# Rational approximations of W. J. Cody, "Rational Chebyshev approximations for the error function",
# Mathematics of Computation 23 (1969): erf on [0, 0.46875], erfc on [0.46875, 4] and beyond 4.
# Coefficients from the highest power down.
SMALL = (
    (1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2,
     3.77485237685302021e2, 3.20937758913846947e3),
    (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3,
     2.84423683343917062e3),
)  # fmt: skip
MIDDLE = (
    (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0,
     6.61191906371416295e1, 2.98635138197400131e2, 8.81952221241769090e2,
     1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3),
    (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2,
     1.62138957456669019e3, 3.29079923573345963e3, 4.36261909014324716e3,
     3.43936767414372164e3, 1.23033935480374942e3),
)  # fmt: skip
LARGE = (
    (1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1,
     1.25781726111229246e-1, 1.60837851487422766e-2, 6.58749161529837803e-4),
    (1.0, 2.56852019228982242e0, 1.87295284992346725e0, 5.27905102951428412e-1,
     6.05183413124413191e-2, 2.33520497626869185e-3),
)  # fmt: skip
_ONE = 6.0  # erf(6) is 1 in f64


def erf(x: Array) -> Array:
    """erf(x) in the dtype of x, computed in f64."""
    z = np.asarray(x, np.float64)
    size = np.minimum(np.abs(z), _ONE)  # NaN stays NaN
    y = np.where(size <= 0.46875, _near_zero(z), np.copysign(1 - _complement(size), z))
    return np.asarray(y).astype(x.dtype)


def _ratio(parts: tuple[tuple[float, ...], tuple[float, ...]], x: Array) -> Array:
    return np.asarray(np.polyval(parts[0], x) / np.polyval(parts[1], x))


def _near_zero(z: Array) -> Array:
    z = np.clip(z, -0.46875, 0.46875)
    return np.asarray(z * _ratio(SMALL, z * z))


def _complement(size: Array) -> Array:
    """erfc on [0.46875, 6]."""
    size = np.maximum(size, 0.46875)
    inverse = 1 / np.square(np.maximum(size, 4.0))
    tail = (1 / np.sqrt(np.pi) - inverse * _ratio(LARGE, inverse)) / np.maximum(size, 4.0)
    scale = np.where(size <= 4.0, _ratio(MIDDLE, np.minimum(size, 4.0)), tail)
    return np.asarray(np.exp(-size * size) * scale)
