"""Attention over several heads."""

from __future__ import annotations

from dataclasses import field

import numpy as np

from graphc import nn
from graphc.frontend.numpy.layer_calls import layer_call
from graphc.frontend.numpy.length import Length
from graphc.layers.base import GLOROT, Array, Layer
from graphc.layers.core import Dense
from graphc.ops.initializers import Initializer
from graphc.support.dataclass import dataclass
from graphc.support.errors import GraphcError


@dataclass(eq=False, repr=False)
class MultiHeadAttention(Layer):
    """`y = out(concat over heads of attention(q(x), k(context), v(context)))`

    x [n, t, width], context [n, s, context_width] (x itself unless given) -> y [n, t, width].
    mask is bool, true where a query may see a key: [t, s], [n, t, s] or [n, heads, t, s];
    `present[:, None]` is the mask of keys `present` [n, s].

    kv_heads: fewer heads of keys and values, each for several of queries (Ainslie et al. 2023)
    dropout:  the rate at which attention weights are dropped in training
    rotary:   whether queries and keys are rotated by their positions (Su et al. 2021)
    """

    width: int
    heads: int
    kv_heads: int | None = None
    context_width: int | None = None
    dropout: float = 0.0
    bias: bool = True
    rotary: bool = False
    rotary_base: float = 10000.0
    init: Initializer = GLOROT
    q: Dense = field(init=False)
    k: Dense = field(init=False)
    v: Dense = field(init=False)
    out: Dense = field(init=False)

    def __post_init__(self) -> None:
        shared = self.kv_heads or self.heads
        if self.width % self.heads or self.heads % shared:
            text = f"{self}: the width is a multiple of heads, and heads of kv_heads"
            help = f"such as MultiHeadAttention({self.heads * 8}, {self.heads})"
            raise GraphcError("G0206", text, help=help)
        inputs = self.context_width or self.width
        inner = self.width // self.heads * shared
        self.q, self.out = (self._dense(self.width, self.width) for _ in range(2))
        self.k, self.v = (self._dense(inputs, inner) for _ in range(2))

    def _dense(self, inputs: int, outputs: int) -> Dense:
        return Dense(inputs, outputs, self.bias, self.init, dtype=self.dtype)

    @layer_call
    def __call__(
        self, x: Array, context: Array | None = None, *, mask: Array | None = None,
        causal: bool = False,
    ) -> Array:  # fmt: skip
        source = x if context is None else context
        q, k, v = (self._split(y) for y in (self.q(x), self.k(source), self.v(source)))
        if self.rotary:
            q, k = nn.rotary(q, base=self.rotary_base), nn.rotary(k, base=self.rotary_base)
        times = q.shape[1] // k.shape[1]
        if times > 1:
            k, v = nn.repeat(k, times, axis=1), nn.repeat(v, times, axis=1)
        if mask is not None:
            mask = _for_heads(mask)
        y = nn.attention(q, k, v, mask, causal, dropout=self.dropout)
        return self.out(np.swapaxes(y, 1, 2).reshape(x.shape))

    def _split(self, x: Array) -> Array:
        """[n, t, heads * d] -> [n, heads, t, d]"""
        d = self.width // self.heads
        return np.swapaxes(x.reshape(*x.shape[:2], x.shape[2] // d, d), 1, 2)


def _for_heads(mask: Array) -> Array:
    """[n, t, s] -> [n, 1, t, s]. Raises G0206 for a mask of keys that are present, [n, s], which
    would be taken for [t, s] where there are as many examples as queries."""
    if mask.ndim == 2 and isinstance(mask.shape[0], Length):
        text = f"the mask of shape {mask.shape} has a row for each example, not for each query"
        raise GraphcError(
            "G0206", text, help="a mask of the keys that are present is mask[:, None]"
        )
    return mask[:, None] if mask.ndim == 3 else mask
