"""How far apart two arrays are, entry by entry, with a defined answer for NaN and infinity.

A NaN or an infinity equals only the same one in the same entry. Plain arithmetic would hide such
differences: `max(worst, nan)` is `worst`, and `abs(x - inf) <= rtol * inf` holds for every x.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from graphc.ir.op import Array


def distance(actual: Any, want: Any) -> float:
    """The largest absolute difference of two entries.

    Infinite if one array has a NaN or an infinity where the other does not have the same, and if
    the shapes differ: nothing is broadcast.
    """
    a, b = np.asarray(actual), np.asarray(want)
    if a.shape != b.shape:
        return float("inf")
    x, y = _wide(a), _wide(b)
    finite = np.isfinite(x) & np.isfinite(y)
    if not np.array_equal(x[~finite], y[~finite], equal_nan=True):
        return float("inf")
    gap = finite_distance(x, y)
    both_whole = a.dtype.kind in "biu" and b.dtype.kind in "biu"
    return max(gap, 1.0) if both_whole and not np.array_equal(a, b) else gap


def finite_distance(actual: Any, want: Any) -> float:
    """The largest absolute difference, over the entries that are finite in both arrays."""
    x, y = _wide(actual), _wide(want)
    finite = np.isfinite(x) & np.isfinite(y)
    with np.errstate(over="ignore"):
        return float(np.max(np.abs(x[finite] - y[finite]), initial=0.0))


def magnitude(x: Any) -> float:
    """The largest absolute value of the finite entries; 0 if there is none."""
    wide = _wide(x)
    return float(np.max(np.abs(wide[np.isfinite(wide)]), initial=0.0))


def within(actual: Any, want: Any, relative: float, least: float = 0.0) -> bool:
    """Whether the distance is at most `relative` times the magnitude of `want`, or times `least`
    if that is larger."""
    return distance(actual, want) <= relative * max(magnitude(want), least)


def _wide(x: Any) -> Array:
    return np.asarray(x).astype(np.float64)
