"""Convolutions and pooling. Channels come last; one number stands for all dims."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, ClassVar

from graphc import init, nn
from graphc.frontend.numpy.layer_calls import layer_call
from graphc.layers.base import GLOROT, NO_DECAY, Array, Layer, Sizes
from graphc.ops.composites.resizing import Method
from graphc.ops.composites.sliding import Padding
from graphc.ops.initializers import Initializer
from graphc.support.dataclass import dataclass
from graphc.support.errors import GraphcError


@dataclass(eq=False, repr=False)
class Conv(Layer, ABC):
    """A convolution of some rank; see Conv2d."""

    inputs: int
    outputs: int
    size: Sizes
    stride: Sizes = 1
    padding: Padding = "same"
    dilation: Sizes = 1
    groups: int = 1
    bias: bool = True
    init: Initializer = GLOROT
    w: Array = field(init=False)
    b: Array | None = field(init=False, metadata=NO_DECAY)
    rank: ClassVar[int]
    function: ClassVar[Callable[..., Array]]

    def __post_init__(self) -> None:
        if self.groups < 1 or self.inputs % self.groups or self.outputs % self.groups:
            text = f"{self}: inputs and outputs are multiples of groups"
            raise GraphcError("G0206", text)
        self.w = self._param((*_each(self.size, self.rank), *self._channels()), self.init)
        self.b = self._param(self.outputs, init.zeros()) if self.bias else None

    def _channels(self) -> tuple[int, int]:
        return self.inputs // self.groups, self.outputs

    def _options(self) -> dict[str, Any]:
        names = ("stride", "padding", "dilation", "groups")
        return {name: getattr(self, name) for name in names}

    @layer_call
    def __call__(self, x: Array) -> Array:
        return type(self).function(x, self.w, self.b, **self._options())


@dataclass(eq=False, repr=False)
class Conv1d(Conv):
    """A convolution over one dim: x [n, length, inputs] -> y [n, length', outputs]

    As Conv2d, with w [size, inputs / groups, outputs]. padding "causal" puts all of it before, so
    that no place sees later ones.
    """

    rank = 1
    function = staticmethod(nn.conv1d)


@dataclass(eq=False, repr=False)
class Conv2d(Conv):
    """A convolution over two dims: x [n, height, width, inputs] -> y [n, .., .., outputs]

    w [size, size, inputs / groups, outputs] is glorot_uniform, b [outputs] zeros. padding: "same"
    (lengths / stride, rounded up), "valid" (none), or a number or a pair for each dim. With groups
    equal to inputs it is a depthwise convolution.
    """

    rank = 2
    function = staticmethod(nn.conv2d)


@dataclass(eq=False, repr=False)
class Conv3d(Conv):
    """A convolution over three dims: x [n, depth, height, width, inputs] -> y [n, .., outputs]

    As Conv2d, with w [size, size, size, inputs / groups, outputs].
    """

    rank = 3
    function = staticmethod(nn.conv3d)


@dataclass(eq=False, repr=False)
class ConvTranspose(Conv, ABC):
    """A transposed convolution of some rank; see ConvTranspose2d."""

    output_padding: Sizes = 0

    def _channels(self) -> tuple[int, int]:
        return self.inputs, self.outputs // self.groups

    def _options(self) -> dict[str, Any]:
        return {**super()._options(), "output_padding": self.output_padding}


@dataclass(eq=False, repr=False)
class ConvTranspose1d(ConvTranspose):
    """A transposed convolution over one dim, as ConvTranspose2d"""

    rank = 1
    function = staticmethod(nn.conv_transpose1d)


@dataclass(eq=False, repr=False)
class ConvTranspose2d(ConvTranspose):
    """The transpose of a convolution: x [n, height, width, inputs] -> y [n, .., .., outputs]

    w [size, size, inputs, outputs / groups]. padding: "same" gives lengths * stride, "valid" all
    that is written; numbers are cut off; output_padding adds entries at the end.
    """

    rank = 2
    function = staticmethod(nn.conv_transpose2d)


@dataclass(eq=False, repr=False)
class ConvTranspose3d(ConvTranspose):
    """A transposed convolution over three dims, as ConvTranspose2d"""

    rank = 3
    function = staticmethod(nn.conv_transpose3d)


def _each(sizes: Sizes, rank: int) -> Sequence[int]:
    return (sizes,) * rank if isinstance(sizes, int) else tuple(sizes)


@dataclass(eq=False, repr=False)
class Upsample(Layer):
    """`y` is x [n, length.., c] with each length times `factor`: "nearest", "linear" or "cubic"

    For others than whole factors, `nn.resize` takes the lengths.
    """

    factor: Sizes = 2
    method: Method = "nearest"

    @layer_call
    def __call__(self, x: Array) -> Array:
        lengths = x.shape[1:-1]
        factors = _each(self.factor, len(lengths))
        sizes = [n * k for n, k in zip(lengths, factors, strict=True)]
        return nn.resize(x, sizes, self.method)


# -- pooling -------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class MaxPool(Layer):
    """`y` is the largest entry of every window of x [n, length.., c], with 1 to 3 lengths

    stride is the size unless given; padding as in Conv2d.
    """

    size: Sizes = 2
    stride: Sizes | None = None
    padding: Padding = "valid"

    @layer_call
    def __call__(self, x: Array) -> Array:
        return nn.max_pool(x, self.size, self.stride, self.padding)


@dataclass(eq=False, repr=False)
class AvgPool(Layer):
    """`y` is the mean of every window's entries, padding not counted; as MaxPool"""

    size: Sizes = 2
    stride: Sizes | None = None
    padding: Padding = "valid"

    @layer_call
    def __call__(self, x: Array) -> Array:
        return nn.avg_pool(x, self.size, self.stride, self.padding)


@dataclass(eq=False, repr=False)
class GlobalMaxPool(Layer):
    """`y[n, c]` is the largest entry of x [n, .., c] over all dims between"""

    @layer_call
    def __call__(self, x: Array) -> Array:
        return nn.global_max_pool(x)


@dataclass(eq=False, repr=False)
class GlobalAvgPool(Layer):
    """`y[n, c]` is the mean of x [n, .., c] over all dims between"""

    @layer_call
    def __call__(self, x: Array) -> Array:
        return nn.global_avg_pool(x)
