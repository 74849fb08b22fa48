"""Layers: dataclasses that are trees of parameters, called like functions in the traced step.

    model = Sequential(Dense(64, 128), nn.relu, Dense(128, 10))

    def loss(model, batch):
        return np.mean(nn.cross_entropy(model(batch["x"]), batch["y"]))

    trainer = graphc.compile(loss, model, batch, optimizer=graphc.optim.adam(1e-3))
    trainer.params  # a model, with arrays

A layer's arrays are parameters, named by their path: `layers.0.w`. Numbers, strings and functions
are settings. Your own layer is a dataclass with `__call__`.
"""

import re
from typing import NoReturn

from graphc.layers.attention import MultiHeadAttention
from graphc.layers.base import Layer
from graphc.layers.convolution import (
    AvgPool,
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    GlobalAvgPool,
    GlobalMaxPool,
    MaxPool,
    Upsample,
)
from graphc.layers.core import Dense, Dropout, Embedding, Flatten, Sequential
from graphc.layers.normalization import BatchNorm, GroupNorm, LayerNorm, RMSNorm
from graphc.layers.recurrent import GRU, LSTM, Bidirectional
from graphc.support.errors import did_you_mean

__all__ = [
    "GRU",
    "LSTM",
    "AvgPool",
    "BatchNorm",
    "Bidirectional",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Dense",
    "Dropout",
    "Embedding",
    "Flatten",
    "GlobalAvgPool",
    "GlobalMaxPool",
    "GroupNorm",
    "Layer",
    "LayerNorm",
    "MaxPool",
    "MultiHeadAttention",
    "RMSNorm",
    "Sequential",
    "Upsample",
]

# What others call them, in lower case, without the number of dims.
_ELSEWHERE = {
    "linear": "Dense", "batchnormalization": "BatchNorm", "layernormalization": "LayerNorm",
    "groupnormalization": "GroupNorm", "rmsnormalization": "RMSNorm", "batchnorm": "BatchNorm",
    "maxpooling": "MaxPool", "maxpool": "MaxPool", "averagepooling": "AvgPool",
    "avgpool": "AvgPool", "globalaveragepooling": "GlobalAvgPool",
    "adaptiveavgpool": "GlobalAvgPool", "globalmaxpooling": "GlobalMaxPool",
    "conv": "Conv1d, Conv2d or Conv3d", "convolution": "Conv1d, Conv2d or Conv3d",
    "convtranspose": "ConvTranspose1d, ConvTranspose2d or ConvTranspose3d",
    "depthwiseconv": "Conv2d(n, n, size, groups=n)", "activation": "nn.relu, or another function",
    "relu": "nn.relu", "gelu": "nn.gelu", "sigmoid": "nn.sigmoid", "tanh": "np.tanh",
    "softmax": "nn.softmax", "leakyrelu": "nn.leaky_relu", "silu": "nn.silu",
    "reshape": "lambda x: x.reshape(x.shape[0], ...)", "identity": "lambda x: x",
    "module": "a dataclass with __call__", "modulelist": "a list", "add": "x + y",
    "concatenate": "np.concatenate", "input": "nothing: sizes are explicit",
    "parameter": "graphc.param", "upsampling": "Upsample",
}  # fmt: skip


def __getattr__(name: str) -> NoReturn:
    found = _ELSEWHERE.get(re.sub(r"[123]d", "", name.lower()))
    similar = did_you_mean(name, __all__) or "dir(graphc.layers) lists them"
    advice = f"write {found}" if found else similar
    raise AttributeError(f"graphc.layers has no layer '{name}': {advice}")
