"""How far the functions that are not exact may be from the true value, in units of the last place.

Measured, and rounded up: f32 over all its 2^32 numbers (of two operands: a million pairs), f64 over
a million bit patterns and a million numbers where the function bends. A unit of the last place is
the distance between the floats beside the true value. Half precision is f32's value, rounded once.
All other elementwise functions are exact, or rounded once.
"""

from __future__ import annotations

# function: (f32, f64)
ULPS: dict[str, tuple[float, float]] = {
    "exp": (1.0, 1.0),
    "expm1": (1.5, 2.0),
    "log": (0.8, 0.9),
    "log1p": (1.5, 1.5),
    "tanh": (1.5, 1.5),
    "erf": (1.7, 2.1),
    "sin": (1.6, 0.8),
    "cos": (1.6, 0.8),
    "pow": (0.51, 1.2),
    "arctan2": (0.51, 1.5),
}


def table() -> str:
    """The bounds, as a page shows them."""
    head = ["| function | f32 | f64 |", "| --- | --- | --- |"]
    return "\n".join(head + [f"| `{name}` | {a} | {b} |" for name, (a, b) in ULPS.items()])
