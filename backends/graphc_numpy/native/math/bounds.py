"""How far the functions that are not exact may be from the true value, in units of the last place.

The largest error that was found, rounded up: f32 over all its 2^32 numbers, f64 and pairs of
operands over millions of numbers at random, of all sizes, and more where the functions bend. A unit
of the last place is the distance between the floats around the true value. Half precision is f32's
value, rounded once more. All other elementwise functions are exact, or rounded once.
"""

from __future__ import annotations

# function: (f32, f64)
ULPS: dict[str, tuple[float, float]] = {
    "exp": (1.1, 1.1),
    "expm1": (1.4, 1.3),
    "log": (0.9, 0.9),
    "log1p": (1.5, 1.4),
    "tanh": (1.4, 1.5),
    "logistic": (2.5, 2.5),
    "erf": (1.9, 1.8),
    "sin": (1.6, 0.8),
    "cos": (1.6, 0.8),
    "pow": (0.51, 1.3),
    "arctan2": (0.51, 1.5),
}


def table() -> str:
    """The bounds, as a page shows them."""
    head = ["| function | f32 | f64 |", "| --- | --- | --- |"]
    return "\n".join(head + [f"| `{name}` | {a} | {b} |" for name, (a, b) in ULPS.items()])
