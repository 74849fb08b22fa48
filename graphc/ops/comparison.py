"""Elementwise comparisons of two operands, and logical operations."""

from __future__ import annotations

import numpy as np

from graphc.ir.op import register
from graphc.ir.types import BOOL
from graphc.ops.elementwise import Elementwise


class Comparison(Elementwise):
    """An elementwise comparison of two operands; the result is bool."""

    arity = 2
    kinds = "fiub"
    result = BOOL
    arithmetic = False
    not_differentiable = "the result is bool"


@register
class Eq(Comparison):
    """`y = a == b`"""

    commutative = True
    ufunc = np.equal


@register
class Ne(Comparison):
    """`y = a != b`"""

    commutative = True
    ufunc = np.not_equal


@register
class Lt(Comparison):
    """`y = a < b`"""

    ufunc = np.less


@register
class Le(Comparison):
    """`y = a <= b`"""

    ufunc = np.less_equal


@register
class Gt(Comparison):
    """`y = a > b`"""

    ufunc = np.greater


@register
class Ge(Comparison):
    """`y = a >= b`"""

    ufunc = np.greater_equal


class Logic(Elementwise):
    """A logical op, bitwise on integers."""

    arity = 2
    kinds = "biu"
    arithmetic = False
    commutative = True
    not_differentiable = "the result is not a float"


@register
class And(Logic):
    """`y = a and b` (bitwise on integers)"""

    ufunc = np.bitwise_and


@register
class Or(Logic):
    """`y = a or b` (bitwise on integers)"""

    ufunc = np.bitwise_or


@register
class Xor(Logic):
    """`y` is whether exactly one of a and b holds (bitwise on integers)"""

    ufunc = np.bitwise_xor
