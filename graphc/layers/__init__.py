"""Layers: dataclasses that are trees of parameters, called like functions in the traced step.

    model = Sequential(Dense(64, 128), nn.relu, Dense(128, 10))

    def loss(model, batch):
        return np.mean(nn.cross_entropy(model(batch["x"]), batch["y"]))

    trainer = graphc.compile(loss, model, batch, optimizer=graphc.optim.adam(1e-3))
    trainer.params  # a model, with arrays

A layer's arrays are parameters, named by their path: `layers.0.w`. Numbers, strings and functions
are settings. Your own layer is a dataclass with `__call__`.
"""

from graphc.layers.base import Layer
from graphc.layers.core import Dense, Dropout, Embedding, Flatten, Sequential
from graphc.layers.normalization import BatchNorm, LayerNorm, RMSNorm

__all__ = [
    "BatchNorm",
    "Dense",
    "Dropout",
    "Embedding",
    "Flatten",
    "Layer",
    "LayerNorm",
    "RMSNorm",
    "Sequential",
]
