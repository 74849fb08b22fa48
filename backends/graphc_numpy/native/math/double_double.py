"""Sums and products of two floats with what rounding has lost: a number as `high + low`.

T. J. Dekker, "A floating-point technique for extending the available precision", Numerische
Mathematik 18 (1971); the product's error by fma.
"""

from __future__ import annotations

from typing import TypeAlias

from graphc_numpy.native.llvm.expressions import Expression, Number

Pair: TypeAlias = tuple[Expression, Expression]


def two_sum(a: Expression, b: Number) -> Pair:
    """a + b."""
    s = a + b
    back = s - a
    return s, (a - (s - back)) + (b - back)


def fast_two_sum(a: Expression, b: Expression) -> Pair:
    """a + b where |a| >= |b|, or a is 0."""
    s = a + b
    return s, b - (s - a)


def two_product(a: Expression, b: Number) -> Pair:
    """a * b."""
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
