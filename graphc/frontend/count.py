"""The length of a run-time dim as Python sees it: an int that stays a run-time count.

`x.shape[0]` is the static batch size where NumPy needs an int (a shape, a range, a slice), and the
run-time count where it meets a traced value: `np.sum(loss) / x.shape[0]` is exact for a short last
batch. Arithmetic with Python numbers keeps both sides: `1 / (n - 1)` is a float that remembers.
`int(n)`, `float(n)`, NumPy's scalars and `np.prod(x.shape)` are plain numbers and forget.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

from graphc.types import Size

Formula: TypeAlias = Callable[[Callable[[Size], Any]], Any]  # from a way to read a Size to a value
Function: TypeAlias = Callable[[Any, Any], Any]


def _formula(x: object) -> Formula | None:
    """How to compute `x` at run time; None for an object that is no number."""
    match x:
        case Derived():
            return x.formula
        case Size() if x.extent is not None:
            size = x
            return lambda read: read(size)
        case int() | float() if type(x) in _PLAIN:
            return lambda read: x
        case _:
            return None


_PLAIN = (int, float, Size)


def _static(x: Any) -> Any:
    return int(x) if isinstance(x, int) else float(x)


def _combine(function: Function, a: object, b: object) -> Any:
    left, right = _formula(a), _formula(b)
    if left is None or right is None:
        return NotImplemented
    static = function(_static(a), _static(b))
    kind = DerivedInt if isinstance(static, int) else DerivedFloat
    made = kind(static)
    made.formula = lambda read: function(left(read), right(read))
    return made


class Derived:
    """A number that was computed from run-time counts; `formula` computes it from their values."""

    formula: Formula


class _Arithmetic:
    """Operators that keep the formula. What is no Python number decides for itself."""

    def __add__(self, other: object) -> Any:
        return _combine(operator.add, self, other)

    def __radd__(self, other: object) -> Any:
        return _combine(operator.add, other, self)

    def __sub__(self, other: object) -> Any:
        return _combine(operator.sub, self, other)

    def __rsub__(self, other: object) -> Any:
        return _combine(operator.sub, other, self)

    def __mul__(self, other: object) -> Any:
        return _combine(operator.mul, self, other)

    def __rmul__(self, other: object) -> Any:
        return _combine(operator.mul, other, self)

    def __truediv__(self, other: object) -> Any:
        return _combine(operator.truediv, self, other)

    def __rtruediv__(self, other: object) -> Any:
        return _combine(operator.truediv, other, self)

    def __floordiv__(self, other: object) -> Any:
        return _combine(operator.floordiv, self, other)

    def __rfloordiv__(self, other: object) -> Any:
        return _combine(operator.floordiv, other, self)

    def __mod__(self, other: object) -> Any:
        return _combine(operator.mod, self, other)

    def __rmod__(self, other: object) -> Any:
        return _combine(operator.mod, other, self)

    def __pow__(self, other: object) -> Any:
        return _combine(operator.pow, self, other)

    def __rpow__(self, other: object) -> Any:
        return _combine(operator.pow, other, self)

    def __neg__(self) -> Any:
        return _combine(operator.mul, -1, self)


class DerivedInt(_Arithmetic, Derived, int):  # type: ignore[misc]
    """`n - 1`."""


class DerivedFloat(_Arithmetic, Derived, float):  # type: ignore[misc]
    """`1 / n`."""


class Count(_Arithmetic, Size):  # type: ignore[misc]
    """A dim's run-time length. Times an int it stays a dim's length (`n * 4` rows of a reshape)."""

    def __mul__(self, other: object) -> Any:
        if type(other) is int:
            product = Size.__mul__(self, other)
            return Count(product, product.extent) if isinstance(product, Size) else product
        return _combine(operator.mul, self, other)

    __rmul__ = __mul__
