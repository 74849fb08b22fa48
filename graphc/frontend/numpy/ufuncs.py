"""Ufuncs: entry by entry, and their methods reduce, accumulate, outer and at."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from graphc.frontend.numpy import reductions, scipy_functions
from graphc.frontend.numpy.handlers import COUNTING, Handler
from graphc.frontend.numpy.reductions import scan
from graphc.frontend.numpy.table import UFUNCS
from graphc.frontend.operands import as_axis, as_int, as_values, dtype_argument, operands, value
from graphc.ir.builder import Builder, Operand, Value
from graphc.ir.op import require
from graphc.ir.types import TensorType, broadcast_types
from graphc.ops.composites.picking import from_front
from graphc.support.errors import GraphcError

_REDUCTIONS: dict[np.ufunc, Handler] = {
    np.add: reductions.sum_, np.multiply: reductions.prod,
    np.maximum: reductions.max_, np.minimum: reductions.min_,
    np.logical_and: reductions.all_, np.logical_or: reductions.any_,
    np.logaddexp: reductions.logsumexp,
}  # fmt: skip
_ASSOCIATIVE = {
    np.add, np.multiply, np.maximum, np.minimum, np.fmax, np.fmin, np.logaddexp,
    np.logical_and, np.logical_or, np.logical_xor, np.bitwise_and, np.bitwise_or, np.bitwise_xor,
}  # fmt: skip


@cache
def handler(ufunc: np.ufunc, method: str) -> Handler | None:
    """The handler of a ufunc's method ('__call__', 'reduce', ...), or None."""
    # scipy's own log1p is called as NumPy's is
    function = UFUNCS.get(ufunc) or scipy_functions.UFUNCS.get(ufunc.__name__)
    function = function or UFUNCS.get(getattr(np, ufunc.__name__, ufunc))
    if function is None:
        return None
    match method:
        case "__call__":
            return _call(function)
        case "reduce":
            return _reduce(ufunc)
        case "accumulate" if ufunc in _ASSOCIATIVE:
            return _accumulate(ufunc, function)
        case "outer" if ufunc.nin == 2:
            return _outer(function)
        case "at" if ufunc is np.add:
            return _add_at
        case _:
            return None


def _call(function: Handler) -> Handler:
    def call(
        f: Builder, *xs: Any, where: Any = True, base: Any = None, dtype: Any = None,
        casting: str = "same_kind", order: str = "K", subok: bool = True,
    ) -> Any:  # fmt: skip
        given: list[Operand] = operands(f, *xs)
        if dtype is not None:
            given = [f.to_dtype(f.lift(x), dtype_argument(dtype)) for x in given]
        result = function(f, *given)
        return result if where is True else _masked(f, result, where, base)

    COUNTING.add(call)
    return call


def _masked(f: Builder, result: Any, where: Any, base: Any) -> Value:
    if base is None or not isinstance(result, Value):
        raise GraphcError(
            "G0810",
            "where= without out= leaves entries undefined",
            help="write np.where(mask, result, other), or give out=np.zeros_like(x)",
        )
    return f.where(value(f, where), result, value(f, base))


def _reduce(ufunc: np.ufunc) -> Handler | None:
    reduction = _REDUCTIONS.get(ufunc)
    if reduction is None:
        return None

    def reduce(f: Builder, a: Any, axis: Any = 0, **options: Any) -> Any:
        return reduction(f, a, axis=axis, **options)

    return reduce


def _accumulate(ufunc: np.ufunc, function: Handler) -> Handler:
    def accumulate(f: Builder, a: Any, axis: Any = 0, dtype: Any = None) -> Value:
        x = reductions.typed(f, a, dtype)
        dim = as_int(as_axis(axis), "axis")
        if ufunc is np.add:
            return f.cumsum(x, dim)
        if ufunc is np.multiply and dtype is None:
            x = reductions.wide_enough(f, x)
        return scan(f, lambda a, b: function(f, a, b), x, dim)

    return accumulate


def _outer(function: Handler) -> Handler:
    def outer(f: Builder, a: Any, b: Any) -> Any:
        x, y = as_values(f, a, b)
        left = f.reshape(x, (*x.shape, *(1,) * y.rank))
        return function(f, left, y)

    return outer


def _add_at(f: Builder, indices: Any, updates: Any, *, x: Any) -> Value:
    """np.add.at with integer indices into the first dim; what is added is cast without a check, as
    NumPy does there."""
    target, ids = value(f, x), value(f, indices)
    require(ids.dtype.kind in "iu", f"np.add.at with indices of {ids.dtype}", code="G0805")
    ids = from_front(f, target, 0, ids)
    known = tuple(ids.type.extent(i) for i in range(ids.rank))
    rest = target.shape[1:]
    wanted = TensorType((*ids.shape, *rest), target.dtype, (*known, *(None,) * len(rest)))
    given = f.to_dtype(f.lift(operands(f, target, updates)[1], target.dtype), target.dtype)
    given = f.broadcast_to(given, *broadcast_types(given.type, wanted))
    return target + f.scatter_add(ids, given, dim=0, size=target.shape[0])
