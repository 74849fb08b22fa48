"""Ufuncs entry by entry, as composites and ops; `f(f, a, b)` with operands already converted."""

from __future__ import annotations

from typing import Any

from graphc.builder import Builder, Operand, Value
from graphc.frontend.numpy_registry import traces, traces_ufunc
from graphc.frontend.operands import as_int, operands, value
from graphc.ops.composites.reductions import truth
from graphc.ops.composites.support import floats
from graphc.types import F64

# -- by the same name, or nearly ------------------------------------------------------------------

_UNARY = {
    "exp": "exp", "expm1": "expm1", "log": "log", "log1p": "log1p", "sqrt": "sqrt",
    "tanh": "tanh", "sin": "sin", "cos": "cos", "tan": "tan", "arcsin": "arcsin",
    "arccos": "arccos", "arctan": "arctan", "sinh": "sinh", "cosh": "cosh",
    "arcsinh": "arcsinh", "arccosh": "arccosh", "arctanh": "arctanh", "absolute": "abs",
    "sign": "sign", "negative": "neg", "square": "square", "cbrt": "cbrt", "exp2": "exp2",
    "log2": "log2", "log10": "log10", "deg2rad": "deg2rad", "radians": "deg2rad",
    "rad2deg": "rad2deg", "degrees": "rad2deg", "isfinite": "is_finite", "isnan": "isnan",
    "isinf": "isinf", "invert": "invert",
}  # fmt: skip
_BINARY = {
    "subtract": "sub", "divide": "div", "floor_divide": "floor_div", "remainder": "mod",
    "arctan2": "arctan2", "hypot": "hypot", "logaddexp": "logaddexp", "logaddexp2": "logaddexp2",
    "maximum": "maximum", "minimum": "minimum", "equal": "eq", "not_equal": "ne", "less": "lt",
    "less_equal": "le", "greater": "gt", "greater_equal": "ge", "bitwise_and": "and",
    "bitwise_or": "or", "bitwise_xor": "xor", "left_shift": "shift_left",
    "right_shift": "shift_right", "bitwise_left_shift": "shift_left",
    "bitwise_right_shift": "shift_right",
}  # fmt: skip


def _enter() -> None:
    for name, op in _UNARY.items():
        traces_ufunc(name)(_unary(op))
    for name, op in _BINARY.items():
        traces_ufunc(name)(_binary(op))


def _unary(op: str) -> Any:
    def call(f: Builder, x: Operand) -> Value:
        y: Value = getattr(f, op)(x)
        return y

    call.__doc__ = f"`{op}`"
    return call


def _binary(op: str) -> Any:
    def call(f: Builder, a: Operand, b: Operand) -> Value:
        y: Value = getattr(f, op)(a, b)
        return y

    call.__doc__ = f"`{op}`"
    return call


_enter()


# -- arithmetic -----------------------------------------------------------------------------------


def _both_bool(a: Operand, b: Operand) -> bool:
    kinds = [x.dtype.kind if isinstance(x, Value) else type(x) for x in (a, b)]
    return all(k in ("b", bool) for k in kinds)


@traces_ufunc("add")
def add(f: Builder, a: Operand, b: Operand) -> Value:
    """`add`; of two bools, `or`"""
    return f.binary("or" if _both_bool(a, b) else "add", a, b)


@traces_ufunc("multiply")
def multiply(f: Builder, a: Operand, b: Operand) -> Value:
    """`mul`; of two bools, `and`"""
    return f.binary("and" if _both_bool(a, b) else "mul", a, b)


@traces_ufunc("power")
def power(f: Builder, a: Operand, b: Operand) -> Value:
    """`power`; of two integer arrays in f64, rounded back"""
    x, y = f.match(a, b) if isinstance(b, Value) else (a, None)
    if y is None or y.dtype.kind == "f" or not isinstance(x, Value):
        return f.power(a, b)
    exact = f.power(f.to_dtype(x, F64), f.to_dtype(y, F64))
    return f.to_dtype(f.round(exact), x.dtype)


@traces_ufunc("float_power")
def float_power(f: Builder, a: Operand, b: Operand) -> Value:
    """`power` in f64"""
    base, exponent = (f.to_dtype(f.lift(x, F64), F64) for x in (a, b))
    return f.binary("pow", base, exponent)


@traces_ufunc("positive")
def positive(f: Builder, x: Value) -> Value:
    """x itself"""
    return x


@traces_ufunc("conjugate", methods=("conj", "conjugate"))
def conjugate(f: Builder, x: Any) -> Value:
    """x itself: there are no complex dtypes"""
    return value(f, x)


@traces_ufunc("reciprocal")
def reciprocal(f: Builder, x: Value) -> Value:
    """`reciprocal`; of integers cut towards zero, as NumPy does"""
    if x.dtype.kind == "f":
        return f.reciprocal(x)
    return f.where(f.eq(f.abs(x), 1), x, f.zeros_like(x))


@traces_ufunc("fmod")
def fmod(f: Builder, a: Operand, b: Operand) -> Value:
    """the remainder with the sign of a"""
    x, y = f.match(a, b)
    if x.dtype.kind in "bu":
        return f.binary("mod", x, y)
    below = f.lt(x, 0)
    rest = f.binary("mod", f.where(below, -x, x), f.abs(y))  # not abs, whose gradient at 0 is 0
    return f.where(below, -rest, rest)


@traces_ufunc("divmod")
def divmod_(f: Builder, a: Operand, b: Operand) -> tuple[Value, Value]:
    """`floor_div` and `mod`"""
    return f.binary("floor_div", a, b), f.binary("mod", a, b)


@traces_ufunc("modf")
def modf(f: Builder, x: Value) -> tuple[Value, Value]:
    """the fraction and the whole part, both with the sign of x"""
    number = floats(f, x)
    whole = f.trunc(number)
    return number - whole, whole


@traces_ufunc("fabs")
def fabs(f: Builder, x: Value) -> Value:
    """`abs` as a float"""
    return f.abs(floats(f, x))


@traces_ufunc("ldexp")
def ldexp(f: Builder, a: Operand, b: Operand) -> Value:
    """a * 2^b"""
    x = floats(f, a)
    return x * f.binary("pow", 2.0, f.to_dtype(f.lift(b), x.dtype))


# -- rounding -------------------------------------------------------------------------------------


def _whole(x: Value) -> bool:
    return x.dtype.kind != "f"


@traces_ufunc("floor")
def floor(f: Builder, x: Value) -> Value:
    """`floor`"""
    return x if _whole(x) else f.floor(x)


@traces_ufunc("ceil")
def ceil(f: Builder, x: Value) -> Value:
    """`ceil`"""
    return f.ceil(x)


@traces_ufunc("trunc")
def trunc(f: Builder, x: Value) -> Value:
    """`trunc`"""
    return f.trunc(x)


@traces("fix")
def fix(f: Builder, x: Any) -> Value:
    """`trunc`"""
    return f.trunc(value(f, x))


@traces_ufunc("rint")
def rint(f: Builder, x: Value) -> Value:
    """`round`, halves to even"""
    return f.round(floats(f, x))


@traces("round", "around", methods=("round",))
def around(f: Builder, a: Any, decimals: Any = 0) -> Value:
    """`round` to a number of decimals"""
    x, places = value(f, a), as_int(decimals, "decimals")
    if _whole(x) and places >= 0:
        return x
    scale = 10.0 ** abs(places)
    if places == 0:
        return f.round(x)
    up = places > 0
    y = f.round(x * scale if up else x / scale)
    return f.to_dtype(y / scale if up else y * scale, x.dtype)


# -- tests ----------------------------------------------------------------------------------------


def _logical(op: str) -> Any:
    def call(f: Builder, a: Operand, b: Operand) -> Value:
        return f.binary(op, truth(f, a), truth(f, b))

    call.__doc__ = f"`{op}` of the truth of both (not 0)"
    return call


for _name in ("and", "or", "xor"):
    traces_ufunc(f"logical_{_name}")(_logical(_name))


@traces_ufunc("logical_not")
def logical_not(f: Builder, x: Value) -> Value:
    """`not` of x's truth (not 0)"""
    return f.not_(truth(f, x))


@traces_ufunc("signbit")
def signbit(f: Builder, x: Value) -> Value:
    """whether x is negative, -0.0 included"""
    if x.dtype.kind != "f":
        return f.lt(x, 0)
    zero = f.eq(x, 0)
    return f.lt(f.where(zero, 1 / f.where(zero, x, 1.0), x), 0)


@traces("isneginf")
def isneginf(f: Builder, x: Any) -> Value:
    """whether x is minus infinity"""
    return f.eq(floats(f, value(f, x)), float("-inf"))


@traces("isposinf")
def isposinf(f: Builder, x: Any) -> Value:
    """whether x is plus infinity"""
    return f.eq(floats(f, value(f, x)), float("inf"))


@traces("isclose")
def isclose(
    f: Builder, a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Value:
    """|a - b| <= atol + rtol |b|, or equal"""
    x, y = f.match(*(f.lift(v) for v in operands(f, a, b)))
    x, y = floats(f, x), floats(f, y)
    near = f.and_(f.le(f.abs(x - y), atol + rtol * f.abs(y)), f.is_finite(y))
    near = f.or_(near, f.eq(x, y))
    return f.or_(near, f.and_(f.isnan(x), f.isnan(y))) if equal_nan else near


@traces("allclose")
def allclose(f: Builder, a: Any, b: Any, **options: Any) -> Value:
    """whether all entries are close: a traced bool, for a report"""
    return f.all(isclose(f, a, b, **options))


@traces("array_equal")
def array_equal(f: Builder, a1: Any, a2: Any) -> Value | bool:
    """whether all entries are equal: a traced bool, for a report"""
    x, y = value(f, a1), value(f, a2)
    return f.all(f.eq(x, y)) if x.shape == y.shape else False


@traces("array_equiv")
def array_equiv(f: Builder, a1: Any, a2: Any) -> Value:
    """whether all entries are equal after broadcasting: a traced bool, for a report"""
    return f.all(f.binary("eq", *operands(f, a1, a2)))
