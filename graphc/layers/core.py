"""Dense layers, embeddings, dropout, and layers one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any

from graphc import init, nn
from graphc.frontend.numpy.layer_calls import layer_call
from graphc.layers.base import GLOROT, NO_DECAY, UNIFORM, Array, Layer
from graphc.ops.initializers import Initializer
from graphc.support.caller import user_span
from graphc.support.dataclass import dataclass
from graphc.support.errors import GraphcError


@dataclass(eq=False, repr=False)
class Dense(Layer):
    """`y = x @ w + b`, on the last dim

    x [.., inputs] -> y [.., outputs]. w [inputs, outputs] is glorot_uniform, b [outputs] zeros.
    """

    inputs: int
    outputs: int
    bias: bool = True
    init: Initializer = GLOROT
    w: Array = field(init=False)
    b: Array | None = field(init=False, metadata=NO_DECAY)

    def __post_init__(self) -> None:
        self.w = self._param((self.inputs, self.outputs), self.init)
        self.b = self._param(self.outputs, init.zeros()) if self.bias else None

    @layer_call
    def __call__(self, x: Array) -> Array:
        return nn.dense(x, self.w, self.b)


@dataclass(eq=False, repr=False)
class Embedding(Layer):
    """`y[i.., :] = table[ids[i..], :]`; an id outside 0 .. rows-1 is an error at run time

    ids [..] -> y [.., width]. table [rows, width] is uniform in [-0.05, 0.05), as in Keras.
    """

    rows: int
    width: int
    init: Initializer = UNIFORM
    table: Array = field(init=False)

    def __post_init__(self) -> None:
        self.table = self._param((self.rows, self.width), self.init)

    @layer_call
    def __call__(self, ids: Array) -> Array:
        return nn.embedding(self.table, ids)


@dataclass(eq=False, repr=False)
class Dropout(Layer):
    """`y = x / (1 - rate)`, or 0 with probability `rate`; x itself in evaluation"""

    rate: float = 0.5
    seed: int | None = None

    @layer_call
    def __call__(self, x: Array) -> Array:
        return nn.dropout(x, self.rate, seed=self.seed)


@dataclass(eq=False, repr=False)
class Flatten(Layer):
    """`y` is x with all dims but the first as one: [n, ..] -> [n, m]"""

    @layer_call
    def __call__(self, x: Array) -> Array:
        return nn.flatten(x, keep=1)


@dataclass(eq=False, repr=False, init=False)
class Sequential(Layer):
    """The composition of layers and functions: the result of each is given to the next

    Sequential(Dense(64, 128), nn.relu, Dense(128, 10)); `model[0]` is its first layer.
    """

    layers: tuple[Callable[[Any], Any], ...]

    def __init__(self, *layers: Callable[[Any], Any] | Sequence[Callable[[Any], Any]]) -> None:
        parts: Any = layers
        match layers:
            case [list() | tuple() as several]:  # as Keras has it
                parts = tuple(several)
        for layer in parts:
            if not callable(layer) or isinstance(layer, type):
                text = f"Sequential takes layers and functions, not {layer!r}"
                raise GraphcError("G0206", text, help=_advice(layer)).at(user_span())
        self.layers = parts

    @layer_call
    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x

    def __repr__(self) -> str:
        return f"Sequential({', '.join(getattr(x, '__qualname__', repr(x)) for x in self.layers)})"

    def __getitem__(self, i: int) -> Any:
        return self.layers[i]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)


def _advice(layer: object) -> str:
    match layer:
        case type():
            return f"make one: {layer.__name__}(...)"
        case str() if layer in dir(nn):
            return f"write nn.{layer}"
        case _:
            return "such as Dense(64, 10), or nn.relu"
