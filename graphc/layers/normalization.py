"""Normalization layers. Their scales start from ones, their shifts from zeros; neither decays."""

from __future__ import annotations

from dataclasses import field

from graphc import init, nn
from graphc.frontend.numpy.layer_calls import layer_call
from graphc.layers.base import NO_DECAY, RUNNING, Array, Layer
from graphc.support.dataclass import dataclass


@dataclass(eq=False, repr=False)
class BatchNorm(Layer):
    """`y = (x - mean) / sqrt(var + eps) * scale + shift` for every channel; channels come last

    In training, mean and variance are those of the whole batch, on any mesh, and the states `mean`
    and `var` follow: `s = momentum * s + (1 - momentum) * batch`. In evaluation, the states are
    used. With torch's convention of momentum, this is 1 - momentum.
    """

    channels: int
    momentum: float = 0.9
    eps: float = 1e-5
    scale: Array = field(init=False, metadata=NO_DECAY)
    shift: Array = field(init=False, metadata=NO_DECAY)
    mean: Array = field(init=False, metadata=RUNNING)
    var: Array = field(init=False, metadata=RUNNING)

    def __post_init__(self) -> None:
        zeros, ones = init.zeros(), init.ones()
        self.scale, self.shift = self._param(self.channels, ones), self._param(self.channels, zeros)
        self.mean, self.var = self._param(self.channels, zeros), self._param(self.channels, ones)

    @layer_call
    def __call__(self, x: Array) -> Array:
        return nn.batch_norm(
            x, self.scale, self.shift, momentum=self.momentum, eps=self.eps, mean=self.mean,
            var=self.var,
        )  # fmt: skip


@dataclass(eq=False, repr=False)
class LayerNorm(Layer):
    """`y = (x - mean) / sqrt(var + eps) * scale + shift` over the last dim, of length `width`"""

    width: int
    eps: float = 1e-5
    scale: Array = field(init=False, metadata=NO_DECAY)
    shift: Array = field(init=False, metadata=NO_DECAY)

    def __post_init__(self) -> None:
        self.scale = self._param(self.width, init.ones())
        self.shift = self._param(self.width, init.zeros())

    @layer_call
    def __call__(self, x: Array) -> Array:
        return nn.layer_norm(x, self.scale, self.shift, eps=self.eps)


@dataclass(eq=False, repr=False)
class GroupNorm(Layer):
    """`y = (x - mean) / sqrt(var + eps) * scale + shift` over each group of an example's channels

    x [n, .., channels]. With as many groups as channels it is instance normalization.
    """

    groups: int
    channels: int
    eps: float = 1e-5
    scale: Array = field(init=False, metadata=NO_DECAY)
    shift: Array = field(init=False, metadata=NO_DECAY)

    def __post_init__(self) -> None:
        self.scale = self._param(self.channels, init.ones())
        self.shift = self._param(self.channels, init.zeros())

    @layer_call
    def __call__(self, x: Array) -> Array:
        return nn.group_norm(x, self.groups, self.scale, self.shift, self.eps)


@dataclass(eq=False, repr=False)
class RMSNorm(Layer):
    """`y = x / sqrt(mean(x^2) + eps) * scale` over the last dim, of length `width`"""

    width: int
    eps: float = 1e-6
    scale: Array = field(init=False, metadata=NO_DECAY)

    def __post_init__(self) -> None:
        self.scale = self._param(self.width, init.ones())

    @layer_call
    def __call__(self, x: Array) -> Array:
        return nn.rms_norm(x, self.scale, eps=self.eps)
