"""Double-double arithmetic: sums and products of floats with their rounding errors, as `high +
low`.

T. J. Dekker, "A floating-point technique for extending the available precision", Numerische
Mathematik 18 (1971); the error of a product by fma.
"""

from __future__ import annotations

from typing import TypeAlias

from graphc_llvm.expressions import Expression, Number

Pair: TypeAlias = tuple[Expression, Expression]


def two_sum(a: Expression, b: Number) -> Pair:
    """(s, e) with s + e = a + b exactly, where s is a + b rounded."""
    s = a + b
    back = s - a
    return s, (a - (s - back)) + (b - back)


def fast_two_sum(a: Expression, b: Expression) -> Pair:
    """As `two_sum`, for |a| >= |b| or a = 0."""
    s = a + b
    return s, b - (s - a)


def two_product(a: Expression, b: Number) -> Pair:
    """(p, e) with p + e = a * b exactly, where p is a * b rounded."""
    y = a * b
    return y, a.fma(b, -y)


def product(a: Pair, b: Pair) -> Pair:
    """a * b to about twice the precision."""
    high, low = two_product(a[0], b[0])
    return fast_two_sum(high, a[0].fma(b[1], a[1].fma(b[0], low)))


def total(a: Pair, b: Pair) -> Pair:
    """a + b to about twice the precision, where |a| >= |b|."""
    high, low = two_sum(a[0], b[0])
    return fast_two_sum(high, low + (a[1] + b[1]))
