"""Functions entry by entry."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from onnx_nodes.table import Call, NotOffered, onnx

from graphc import nn

UNARY = {
    "Abs": np.abs, "Acos": np.arccos, "Acosh": np.arccosh, "Asin": np.arcsin,
    "Asinh": np.arcsinh, "Atan": np.arctan, "Atanh": np.arctanh, "Ceil": np.ceil, "Cos": np.cos,
    "Cosh": np.cosh, "Exp": np.exp, "Floor": np.floor, "IsNaN": np.isnan, "Log": np.log,
    "Neg": np.negative, "Not": np.logical_not, "Reciprocal": np.reciprocal, "Round": np.round,
    "Sign": np.sign, "Sin": np.sin, "Sinh": np.sinh, "Sqrt": np.sqrt, "Tan": np.tan,
    "Tanh": np.tanh, "BitwiseNot": np.invert, "Erf": nn.erf, "Relu": nn.relu,
    "Sigmoid": nn.sigmoid, "Softplus": nn.softplus,
}  # fmt: skip
BINARY = {
    "Add": np.add, "And": np.logical_and, "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor, "Equal": np.equal,
    "Greater": np.greater, "GreaterOrEqual": np.greater_equal, "Less": np.less,
    "LessOrEqual": np.less_equal, "Mul": np.multiply, "Or": np.logical_or, "Sub": np.subtract,
    "Xor": np.logical_xor,
}  # fmt: skip
NARY = {"Max": np.maximum, "Min": np.minimum, "Sum": np.add}


@onnx(*UNARY)
def unary(c: Call, x: Any) -> Any:
    return UNARY[c.type](x)


@onnx(*BINARY)
def binary(c: Call, a: Any, b: Any) -> Any:
    return BINARY[c.type](a, b)


@onnx(*NARY)
def nary(c: Call, *xs: Any) -> Any:
    return reduce(NARY[c.type], xs)


@onnx("Mean")
def mean_of_all(c: Call, *xs: Any) -> Any:
    return reduce(np.add, xs) / len(xs)


@onnx("Div")
def div(c: Call, a: Any, b: Any) -> Any:
    if a.dtype.kind == "u":
        return a // b
    if a.dtype.kind != "i":  # bfloat16 has a kind of its own
        return a / b
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))  # ONNX cuts towards zero


@onnx("Pow")
def pow(c: Call, a: Any, b: Any) -> Any:
    return np.astype(np.power(a, b), a.dtype)


@onnx("Mod")
def mod(c: Call, a: Any, b: Any) -> Any:
    return np.fmod(a, b) if c.get("fmod") else np.mod(a, b)


@onnx("BitShift")
def bit_shift(c: Call, a: Any, b: Any) -> Any:
    return np.left_shift(a, b) if c["direction"] == b"LEFT" else np.right_shift(a, b)


@onnx("IsInf")
def is_inf(c: Call, x: Any) -> Any:
    above = np.isposinf(x) if c.get("detect_positive", 1) else np.zeros_like(x, bool)
    below = np.isneginf(x) if c.get("detect_negative", 1) else np.zeros_like(x, bool)
    return np.logical_or(above, below)


@onnx("Identity")
def identity(c: Call, x: Any) -> Any:
    return x


@onnx("Where")
def where(c: Call, condition: Any, a: Any, b: Any) -> Any:
    return np.where(condition, a, b)


@onnx("Clip")
def clip(c: Call, x: Any, low: Any = None, high: Any = None) -> Any:
    low = c.get("min") if low is None else low
    high = c.get("max") if high is None else high
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


# -- activations ----------------------------------------------------------------------------------


@onnx("LeakyRelu")
def leaky_relu(c: Call, x: Any) -> Any:
    return nn.leaky_relu(x, c.get("alpha", 0.01))


@onnx("PRelu")
def prelu(c: Call, x: Any, slope: Any) -> Any:
    return np.where(x < 0, slope * x, x)


@onnx("ThresholdedRelu")
def thresholded_relu(c: Call, x: Any) -> Any:
    return np.where(x > c.get("alpha", 1.0), x, 0)


@onnx("Elu")
def elu(c: Call, x: Any) -> Any:
    return nn.elu(x, c.get("alpha", 1.0))


@onnx("Celu")
def celu(c: Call, x: Any) -> Any:
    return nn.celu(x, c.get("alpha", 1.0))


@onnx("Selu")
def selu(c: Call, x: Any) -> Any:
    alpha, gamma = (
        c.get("alpha", 1.67326319217681884765625),
        c.get("gamma", 1.05070102214813232421875),
    )
    return gamma * nn.elu(x, alpha)


@onnx("HardSigmoid")
def hard_sigmoid(c: Call, x: Any) -> Any:
    return np.clip(c.get("alpha", 0.2) * x + c.get("beta", 0.5), 0, 1)


@onnx("HardSwish")
def hard_swish(c: Call, x: Any) -> Any:
    return nn.hard_swish(x)


@onnx("Mish")
def mish(c: Call, x: Any) -> Any:
    return nn.mish(x)


@onnx("Swish")
def swish(c: Call, x: Any) -> Any:
    return x * nn.sigmoid(c.get("alpha", 1.0) * x)


@onnx("SwiGLU")
def swiglu(c: Call, gate: Any, up: Any = None) -> Any:
    if up is None:
        raise NotOffered("one input")
    return gate * nn.sigmoid(c.get("alpha", 1.0) * gate) * up


@onnx("Softsign")
def softsign(c: Call, x: Any) -> Any:
    return x / (1 + np.abs(x))


@onnx("Gelu")
def gelu(c: Call, x: Any) -> Any:
    return nn.gelu(x, approximate=c.get("approximate", b"none") == b"tanh")


@onnx("Shrink")
def shrink(c: Call, x: Any) -> Any:
    edge, bias = c.get("lambd", 0.5), c.get("bias", 0.0)
    return np.where(x < -edge, x + bias, np.where(x > edge, x - bias, 0))


@onnx("Hardmax")
def hardmax(c: Call, x: Any) -> Any:
    axis = c.get("axis", -1)
    first = np.expand_dims(np.argmax(x, axis=axis), axis)
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    return np.astype(first == np.arange(x.shape[axis], dtype=np.int32).reshape(shape), x.dtype)


@onnx("Softmax")
def softmax(c: Call, x: Any) -> Any:
    return nn.softmax(x, axis=c.get("axis", -1))


@onnx("LogSoftmax")
def log_softmax(c: Call, x: Any) -> Any:
    return nn.log_softmax(x, axis=c.get("axis", -1))


# -- optimizers -----------------------------------------------------------------------------------


Update = tuple[Any, ...]


def each(c: Call, update: Callable[..., Update], states: int, xs: tuple[Any, ...]) -> Update:
    """An update of several variables: all variables come first, then all gradients, then states."""
    n = len(xs) // (2 + states)
    made = [update(*(xs[i + k * n] for k in range(2 + states))) for i in range(n)]
    return tuple(x for result in zip(*made, strict=True) for x in result)


@onnx("Adam")
def adam(c: Call, rate: Any, t: Any, *xs: Any) -> Update:
    a, b, eps = c.get("alpha", 0.9), c.get("beta", 0.999), c.get("epsilon", 1e-6)
    n = np.astype(t, np.float32)
    fixed = np.where(t > 0, rate * np.sqrt(1 - b**n) / (1 - a**n), rate)

    def update(x: Any, g: Any, v: Any, h: Any) -> Update:
        g = g + c.get("norm_coefficient", 0.0) * x
        v, h = a * v + (1 - a) * g, b * h + (1 - b) * g * g
        x = x - fixed * v / (np.sqrt(h) + eps)
        return (1 - c.get("norm_coefficient_post", 0.0)) * x, v, h

    return each(c, update, 2, xs)


@onnx("Adagrad")
def adagrad(c: Call, rate: Any, t: Any, *xs: Any) -> Update:
    rate = rate / (1 + np.astype(t, np.float32) * c.get("decay_factor", 0.0))

    def update(x: Any, g: Any, h: Any) -> Update:
        g = g + c.get("norm_coefficient", 0.0) * x
        h = h + g * g
        return x - rate * g / (np.sqrt(h) + c.get("epsilon", 1e-6)), h

    return each(c, update, 1, xs)


@onnx("Momentum")
def momentum(c: Call, rate: Any, t: Any, *xs: Any) -> Update:
    a, nesterov = c.get("alpha", 0.9), c.get("mode") == b"nesterov"
    fresh = np.astype(np.where(t > 0, c.get("beta", 1.0), 1.0), np.float32)

    def update(x: Any, g: Any, v: Any) -> Update:
        g = g + c.get("norm_coefficient", 0.0) * x
        v = a * v + fresh * g
        return x - rate * (g + a * v if nesterov else v), v

    return each(c, update, 1, xs)
