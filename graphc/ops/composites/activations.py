"""Activation functions."""

from __future__ import annotations

from math import pi, sqrt

from graphc.ir.builder import Builder, Operand, Value
from graphc.ir.op import require
from graphc.ir.registry import composite, scipy_ufunc
from graphc.ops.composites.reductions import peak
from graphc.ops.composites.shaping import split
from graphc.ops.composites.support import Axis, dims_of, floats
from graphc.ops.rules import spread


@composite
def relu(f: Builder, x: Operand) -> Value:
    """`y = max(x, 0)`; its gradient at 0 is 0"""
    return f.maximum(x, 0)


@composite
def leaky_relu(f: Builder, x: Operand, slope: float = 0.01) -> Value:
    """`y = x where x > 0, else slope * x`"""
    value = floats(f, x)
    return f.select(f.gt(value, 0), value, slope * value)


@composite
def elu(f: Builder, x: Operand, alpha: float = 1.0) -> Value:
    """`y = x where x > 0, else alpha * (e^x - 1)` (Clevert, Unterthiner, Hochreiter 2015)"""
    value = floats(f, x)
    positive = f.gt(value, 0)
    below = f.select(positive, f.zeros_like(value), value)  # not min, whose gradient at 0 is 0
    return f.select(positive, value, alpha * f.expm1(below))


@scipy_ufunc("expit")
@composite
def sigmoid(f: Builder, x: Operand) -> Value:
    """`y = 1 / (1 + e^-x)`; only e to negative powers is taken, so that nothing overflows"""
    return f.logistic(floats(f, x))


@scipy_ufunc("logit")
@composite
def logit(f: Builder, p: Operand) -> Value:
    """`y = log(p / (1 - p))`, whose inverse is the sigmoid"""
    value = floats(f, p)
    return f.log(value) - f.log1p(-value)


@composite
def softplus(f: Builder, x: Operand) -> Value:
    """`y = log(1 + e^x)`, exact at both ends"""
    value = floats(f, x)
    positive = f.gt(value, 0)
    small = f.log1p(f.exp(f.select(positive, -value, value)))
    return f.select(positive, value, f.zeros_like(value)) + small


@scipy_ufunc("log_expit")
@composite
def log_sigmoid(f: Builder, x: Operand) -> Value:
    """`y = log(sigmoid(x))`, exact at both ends"""
    return -f.softplus(-floats(f, x))


@composite
def silu(f: Builder, x: Operand) -> Value:
    """`y = x * sigmoid(x)` (Elfwing, Uchibe, Doya 2017)"""
    return floats(f, x) * f.sigmoid(x)


@composite
def swish(f: Builder, x: Operand, beta: float = 1.0) -> Value:
    """`y = x * sigmoid(beta * x)` (Ramachandran, Zoph, Le 2017)"""
    value = floats(f, x)
    return value * f.sigmoid(value if beta == 1.0 else beta * value)


@composite
def gelu(f: Builder, x: Operand, approximate: bool = False) -> Value:
    """`y = x/2 * (1 + erf(x / sqrt 2))` (Hendrycks, Gimpel 2016), or its tanh approximation"""
    value = floats(f, x)
    if approximate:
        inner = sqrt(2 / pi) * (value + 0.044715 * value * value * value)
        return 0.5 * value * (1 + f.tanh(inner))
    return 0.5 * value * (1 + f.erf(value * (1 / sqrt(2))))


@composite
def relu6(f: Builder, x: Operand) -> Value:
    """`y = min(max(x, 0), 6)` (Krizhevsky 2010)"""
    return f.clip(x, 0, 6)


@composite
def selu(f: Builder, x: Operand) -> Value:
    """`y = 1.0507 * (x where x > 0, else 1.67326 * (e^x - 1))` (Klambauer et al. 2017)"""
    return 1.0507009873554805 * f.elu(x, 1.6732632423543772)


@composite
def celu(f: Builder, x: Operand, alpha: float = 1.0) -> Value:
    """`y = x where x > 0, else alpha * (e^(x / alpha) - 1)` (Barron 2017)"""
    require(alpha != 0, "celu: alpha is 0", code="G0206")
    value = floats(f, x)
    positive = f.gt(value, 0)
    below = f.select(positive, f.zeros_like(value), value / alpha)
    return f.select(positive, value, alpha * f.expm1(below))


@composite
def mish(f: Builder, x: Operand) -> Value:
    """`y = x * tanh(softplus(x))` (Misra 2019)"""
    return floats(f, x) * f.tanh(f.softplus(x))


@composite
def hard_sigmoid(f: Builder, x: Operand) -> Value:
    """`y = min(max(x / 6 + 1/2, 0), 1)`"""
    return f.clip(floats(f, x) * (1 / 6) + 0.5, 0, 1)


@composite
def hard_swish(f: Builder, x: Operand) -> Value:
    """`y = x * hard_sigmoid(x)` (Howard et al. 2019)"""
    return floats(f, x) * f.hard_sigmoid(x)


@composite
def glu(f: Builder, x: Operand, axis: int = -1) -> Value:
    """`y = a * sigmoid(b)`, a and b the halves of x along `axis` (Dauphin et al. 2017)"""
    a, b = split(f, floats(f, x), 2, axis)
    return a * f.sigmoid(b)


@composite
def softmax(f: Builder, x: Operand, axis: Axis = -1) -> Value:
    """`y = e^x / sum(e^x)` over `axis`, shifted by the maximum"""
    value = floats(f, x)
    dims = dims_of("softmax", axis, value.rank)
    e = f.exp(value - spread(f, peak(f, value, dims), value, dims))
    return e / spread(f, f.sum(e, dims), value, dims)


@composite
def log_softmax(f: Builder, x: Operand, axis: Axis = -1) -> Value:
    """`y = x - log(sum(e^x))` over `axis`, shifted by the maximum

    As in JAX, a row is NaN throughout if it contains NaN or +infinity, or nothing but -infinity.
    """
    value = floats(f, x)
    dims = dims_of("log_softmax", axis, value.rank)
    shifted = value - spread(f, peak(f, value, dims), value, dims)
    return shifted - spread(f, f.log(f.sum(f.exp(shifted), dims)), value, dims)
