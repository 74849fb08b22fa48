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
from graphc.layers.recurrent import GRU, LSTM, Bidirectional, SimpleRNN
from graphc.support.caller import user_span
from graphc.support.calls import explain_classes
from graphc.support.errors import UnknownNameError, did_you_mean

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
    "SimpleRNN",
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
    "rnn": "SimpleRNN", "parameter": "graphc.param", "upsampling": "Upsample",
}  # fmt: skip


def __getattr__(name: str) -> NoReturn:
    found = _ELSEWHERE.get(re.sub(r"[123]d", "", name.lower()))
    similar = did_you_mean(name, __all__) or "dir(graphc.layers) lists them"
    if name.startswith("__"):
        raise AttributeError(name)
    advice = f"write {found}" if found else similar
    text = f"graphc.layers has no layer '{name}'"
    raise UnknownNameError("G0836", text, span=user_span(), help=advice)


_BEHIND = "put the function behind the layer: Sequential(Dense(64, 10), nn.relu)"
_WIDTHS = "layers take both lengths: Dense(inputs, outputs), LSTM(inputs, units)"
_WORDS = {  # arguments of others
    **dict.fromkeys(("activation", "recurrent_activation", "nonlinearity"), _BEHIND),
    **dict.fromkeys(("in_features", "in_channels", "input_size", "input_dim"), _WIDTHS),
    **dict.fromkeys(("out_features", "out_channels", "filters", "features"), _WIDTHS),
    **dict.fromkeys(("input_shape", "hidden_size", "output_dim", "units"), _WIDTHS),
    **dict.fromkeys(("kernel_size", "pool_size"), "it is called size="),
    "strides": "it is called stride=",
    "dilation_rate": "it is called dilation=",
    "use_bias": "it is called bias=",
    **dict.fromkeys(("kernel_initializer", "embeddings_initializer"), "it is called init="),
    **dict.fromkeys(("p", "prob"), "it is called rate="),
    **dict.fromkeys(("epsilon", "variance_epsilon"), "it is called eps="),
    "num_features": "it is called channels=",
    **dict.fromkeys(
        ("normalized_shape", "axis"), "it is called width=, the length of the last dim"
    ),
    **dict.fromkeys(("num_heads", "n_heads"), "it is called heads="),
    **dict.fromkeys(("embed_dim", "key_dim", "d_model"), "it is called width="),
    "num_embeddings": "write Embedding(rows, width)",
    "embedding_dim": "write Embedding(rows, width)",
    "num_groups": "it is called groups=",
    "scale_factor": "it is called factor=",
    "batch_first": "leave it out: x is [batch, time, features]",
    "num_layers": "put several behind each other: Sequential(LSTM(8, 16, return_sequences=True), "
    "LSTM(16, 16))",
    "bidirectional": "write Bidirectional(LSTM(8, 16), LSTM(8, 16))",
    "data_format": "leave it out: channels are the last dim",
    "name": "leave it out: parameters are named by their place in the model",
    "trainable": 'freeze params by their names: graphc.optim.by_group({"layers.0.*": None, ...})',
    "inplace": "leave it out",
}
explain_classes((globals()[name] for name in __all__), _WORDS)
