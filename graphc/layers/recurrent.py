"""Recurrent layers: their cells, unrolled over the time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import field
from typing import Any, TypeAlias

import numpy as np

from graphc import init, nn
from graphc.frontend.numpy.layer_calls import layer_call
from graphc.layers.base import GLOROT, NO_DECAY, Array, Layer
from graphc.ops.initializers import Initializer
from graphc.support.dataclass import dataclass

State: TypeAlias = tuple[Array, ...]


@dataclass(eq=False, repr=False)
class Recurrent(Layer, ABC):
    """A recurrent layer over x [n, t, inputs]; see LSTM."""

    inputs: int
    units: int
    return_sequences: bool = False
    return_state: bool = False
    reverse: bool = False
    init: Initializer = GLOROT

    @layer_call
    def __call__(self, x: Array, state: State | None = None, *, mask: Array | None = None) -> Any:
        """y, or (y, state): see the class

        state: that before the first step, zeros unless given
        mask:  bool [n, t]; a step where it is false leaves the state as it was
        """
        now = state or self._first(x)
        steps = range(x.shape[1])
        outputs = {}
        for t in reversed(steps) if self.reverse else steps:
            new = self._step(x[:, t], now)
            if mask is not None:
                seen = mask[:, t, None]
                new = tuple(np.where(seen, a, b) for a, b in zip(new, now, strict=True))
            now = new
            outputs[t] = now[0]
        y = np.stack([outputs[t] for t in steps], axis=1) if self.return_sequences else now[0]
        return (y, now) if self.return_state else y

    def _zeros(self, x: Array) -> Array:
        return nn.zeros((nn.size(x, 0), self.units), self.dtype)

    @abstractmethod
    def _first(self, x: Array) -> State:
        """The state before the first step."""

    @abstractmethod
    def _step(self, x: Array, state: State) -> State:
        """The state after x [n, inputs]; its first part is the output."""


@dataclass(eq=False, repr=False)
class LSTM(Recurrent):
    """Long short-term memory over x [n, t, inputs] (Hochreiter, Schmidhuber 1997; see lstm_cell)

    y is the last output [n, units], or with return_sequences all of them [n, t, units], in the
    order of x. return_state: also the last state (h, c). reverse: from the last step to the first.
    wx [inputs, 4 units] and wh [units, 4 units] are glorot_uniform, b [4 units] zeros, but ones
    for the forget gate (Jozefowicz, Zaremba, Sutskever 2015). Gates are in the order of torch and
    Keras.
    """

    wx: Array = field(init=False)
    wh: Array = field(init=False)
    b: Array = field(init=False, metadata=NO_DECAY)

    def __post_init__(self) -> None:
        self.wx = self._param((self.inputs, 4 * self.units), self.init)
        self.wh = self._param((self.units, 4 * self.units), self.init)
        self.b = np.repeat(np.array([0, 1, 0, 0], self.dtype), self.units)

    def _first(self, x: Array) -> State:
        return self._zeros(x), self._zeros(x)

    def _step(self, x: Array, state: State) -> State:
        h, c = state
        return nn.lstm_cell(x, h, c, self.wx, self.wh, self.b)


@dataclass(eq=False, repr=False)
class GRU(Recurrent):
    """A gated recurrent unit over x [n, t, inputs] (Cho et al. 2014; see gru_cell)

    As LSTM, with the state (h,), wx [inputs, 3 units], wh [units, 3 units], bx and bh [3 units].
    Gates are in the order of torch; the reset gate is applied after the product with wh.
    """

    wx: Array = field(init=False)
    wh: Array = field(init=False)
    bx: Array = field(init=False, metadata=NO_DECAY)
    bh: Array = field(init=False, metadata=NO_DECAY)

    def __post_init__(self) -> None:
        self.wx = self._param((self.inputs, 3 * self.units), self.init)
        self.wh = self._param((self.units, 3 * self.units), self.init)
        self.bx, self.bh = (self._param(3 * self.units, init.zeros()) for _ in range(2))

    def _first(self, x: Array) -> State:
        return (self._zeros(x),)

    def _step(self, x: Array, state: State) -> State:
        (h,) = state
        return (nn.gru_cell(x, h, self.wx, self.wh, self.bx, self.bh),)


@dataclass(eq=False, repr=False)
class SimpleRNN(Recurrent):
    """`h' = tanh(x @ wx + h @ wh + b)` over x [n, t, inputs] (Elman 1990)

    As LSTM, with the state (h,), wx [inputs, units], wh [units, units] and b [units]. It is Keras's
    SimpleRNN, and torch's RNN with the sum of its two biases.
    """

    wx: Array = field(init=False)
    wh: Array = field(init=False)
    b: Array = field(init=False, metadata=NO_DECAY)

    def __post_init__(self) -> None:
        self.wx = self._param((self.inputs, self.units), self.init)
        self.wh = self._param((self.units, self.units), self.init)
        self.b = self._param(self.units, init.zeros())

    def _first(self, x: Array) -> State:
        return (self._zeros(x),)

    def _step(self, x: Array, state: State) -> State:
        (h,) = state
        return (np.tanh(nn.dense(x, self.wx, self.b) + h @ self.wh),)


@dataclass(eq=False, repr=False)
class Bidirectional(Layer):
    """`y = concat(forward(x), backward(x))` along the last dim; backward has reverse=True

    Bidirectional(LSTM(8, 16), LSTM(8, 16, reverse=True)) -> y [n, 32]
    """

    forward: Recurrent
    backward: Recurrent

    @layer_call
    def __call__(self, x: Array, *, mask: Array | None = None) -> Array:
        parts = [self.forward(x, mask=mask), self.backward(x, mask=mask)]
        return np.concatenate(parts, axis=-1)
