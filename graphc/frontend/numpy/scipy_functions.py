"""Functions of scipy that can be traced, by name: scipy is no dependency of graphc.

Its ufuncs come through NumPy's protocol. softmax, log_softmax and logsumexp are functions of Python
and are replaced in the module while a function is traced, if it was imported; so are the methods of
scipy.stats.norm.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log, pi
from typing import Any

from graphc.frontend.numpy import error_functions, gamma_functions
from graphc.frontend.numpy.handlers import Handler
from graphc.frontend.numpy.reductions import logsumexp
from graphc.frontend.operands import as_axis, operands, value
from graphc.ir.builder import Builder, Value
from graphc.ops.composites.support import floats

Operand = Any


def _floats(f: Builder, *xs: Any) -> list[Value]:
    a, *rest = operands(f, *xs)
    first, others = f.lift(a), [f.lift(x) for x in rest]
    return [floats(f, x) for x in (first, *others)]


def _logit(f: Builder, p: Operand) -> Value:
    (x,) = _floats(f, p)
    return f.log(x) - f.log1p(-x)


def _product_with_log(of: str) -> Handler:
    """x * log(y), and 0 where x is 0 and y is a number."""

    def call(f: Builder, x: Operand, y: Operand) -> Value:
        a, b = f.match(*_floats(f, x, y))
        nothing = f.and_(f.eq(a, 0), f.eq(b, b))
        safe = f.select(nothing, f.ones_like(b), b)
        product = a * (f.log(safe) if of == "log" else f.log1p(safe))
        return f.select(nothing, f.zeros_like(product), product)

    return call


def _entropy(f: Builder, x: Operand) -> Value:
    (a,) = _floats(f, x)
    y: Value = -_product_with_log("log")(f, a, f.maximum(a, 0))
    below: Value = f.select(f.lt(a, 0), f.full_like(y, float("-inf")), y)
    return below


def _relative_entropy(f: Builder, x: Operand, y: Operand) -> Value:
    a, b = f.match(*_floats(f, x, y))
    ratio = a / f.select(f.eq(a, 0), f.ones_like(b), b)
    product: Value = _product_with_log("log")(f, a, ratio)
    return product


def _divergence(f: Builder, x: Operand, y: Operand) -> Value:
    a, b = f.match(*_floats(f, x, y))
    result: Value = _relative_entropy(f, a, b) - a + b
    return result


def _huber(f: Builder, delta: Value, r: Value) -> Value:
    size = f.abs(r)
    y = f.select(f.le(size, delta), r * r * 0.5, delta * (size - delta * 0.5))
    return f.select(f.lt(delta, 0.0), f.full_like(y, float("inf")), y)


def _pseudo_huber(f: Builder, delta: Value, r: Value) -> Value:
    safe = f.select(f.eq(delta, 0.0), f.ones_like(delta), delta)
    part = r / safe
    y = delta * delta * f.expm1(f.log1p(part * part) * 0.5)
    return f.select(f.lt(delta, 0.0), f.full_like(y, float("inf")), y)


UFUNCS: dict[str, Handler] = {
    "expit": lambda f, x: f.sigmoid(x),
    "log_expit": lambda f, x: f.log_sigmoid(x),
    "logit": _logit,
    "erf": lambda f, x: f.erf(value(f, x)),
    "xlogy": _product_with_log("log"),
    "xlog1py": _product_with_log("log1p"),
    "entr": _entropy,
    "rel_entr": _relative_entropy,
    "kl_div": _divergence,
    "erfc": error_functions.erfc,
    "erfcx": error_functions.erfcx,
    "ndtr": error_functions.ndtr,
    "log_ndtr": error_functions.log_ndtr,
    "gammaln": gamma_functions.gammaln,
    "loggamma": gamma_functions.loggamma,
    "gamma": gamma_functions.gamma,
    "psi": gamma_functions.digamma,
    "digamma": gamma_functions.digamma,
    "betaln": gamma_functions.betaln,
    "beta": gamma_functions.beta,
    "huber": error_functions.in_f64(_huber),
    "pseudo_huber": error_functions.in_f64(_pseudo_huber),
    "exp10": lambda f, x: f.exp(value(f, x) * log(10)),
}


def _over_axis(composite: str) -> Handler:
    """`softmax` or `log_softmax`, over all entries if no axis is given."""

    def call(f: Builder, x: Any, axis: Any = None) -> Value:
        a = value(f, x)
        over = tuple(range(a.rank)) if axis is None else as_axis(axis)
        y: Value = getattr(f, composite)(a, axis=over)
        return y

    return call


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "softmax": _over_axis("softmax"),
    "log_softmax": _over_axis("log_softmax"),
    "logsumexp": logsumexp,
}


def _density(f: Builder, x: Any, loc: Any = 0, scale: Any = 1) -> Value:
    y: Value = f.exp(_log_density(f, x, loc, scale))
    return y


def _log_density(f: Builder, x: Any, loc: Any = 0, scale: Any = 1) -> Value:
    a, mean, width = _floats(f, x, loc, scale)
    y: Value = f.square((a - mean) / width) * -0.5 - f.log(width) - 0.5 * log(2 * pi)
    return y


def _of_normal(function: Callable[..., Value], above: bool = False) -> Callable[..., Value]:
    """A function of a normal distribution, from that of the standard one.

    above: of what lies above x, instead of below
    """

    def call(f: Builder, x: Any, loc: Any = 0, scale: Any = 1) -> Value:
        a, mean, width = _floats(f, x, loc, scale)
        return function(f, (mean - a if above else a - mean) / width)

    return call


# Methods of scipy.stats.norm.
NORMAL: dict[str, Callable[..., Value]] = {
    "pdf": _density,
    "logpdf": _log_density,
    "cdf": _of_normal(error_functions.ndtr),
    "sf": _of_normal(error_functions.ndtr, above=True),
    "logcdf": _of_normal(error_functions.log_ndtr),
    "logsf": _of_normal(error_functions.log_ndtr, above=True),
}
