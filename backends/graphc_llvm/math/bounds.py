"""Error bounds of the functions that are not exact, in units in the last place.

They are the largest errors that were found, rounded up: for f32 over all 2^32 numbers, for f64 and
for pairs of operands over millions of random numbers of all sizes, with more of them where the
functions bend. A unit in the last place is the distance between the floats around the true value.
Half precision is the f32 value, rounded once more. All other elementwise functions are exact, or
rounded once.
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
    """The bounds as a Markdown table."""
    head = ["| function | f32 | f64 |", "| --- | --- | --- |"]
    return "\n".join(head + [f"| `{name}` | {a} | {b} |" for name, (a, b) in ULPS.items()])
