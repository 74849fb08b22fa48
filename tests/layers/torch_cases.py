"""The layers that are compared with PyTorch's: each with the shape of its input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphc import layers as L

Array = np.ndarray


def _conv(kind: type[Any], *options: Any, **more: Any) -> Callable[[], Any]:
    return lambda: kind(4, 6, *options, **more)


CASES: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "dense": (lambda: L.Dense(4, 3), (2, 5, 4)),
    "conv1d": (_conv(L.Conv1d, 3, padding=1), (2, 7, 4)),
    "conv1d_strided": (_conv(L.Conv1d, 3, 2, 0, 2, bias=False), (2, 9, 4)),
    "conv2d": (_conv(L.Conv2d, (3, 2), padding=(1, 0)), (2, 5, 4, 4)),
    "conv2d_grouped": (_conv(L.Conv2d, 2, (2, 1), 1, (1, 2), 2), (2, 5, 5, 4)),
    "conv2d_depthwise": (lambda: L.Conv2d(4, 8, 3, padding=1, groups=4), (1, 5, 5, 4)),
    "conv3d": (_conv(L.Conv3d, 2, padding=1), (1, 3, 3, 4, 4)),
    "conv3d_grouped": (_conv(L.Conv3d, (2, 1, 2), (1, 2, 1), 0, 1, 2), (1, 3, 3, 4, 4)),
    "transposed1d": (_conv(L.ConvTranspose1d, 3, 2, 1), (2, 5, 4)),
    "transposed1d_more": (_conv(L.ConvTranspose1d, 2, 3, 0, 2, 2, output_padding=2), (2, 4, 4)),
    "transposed2d": (_conv(L.ConvTranspose2d, 2, 2, 0), (2, 3, 3, 4)),
    "transposed2d_grouped": (_conv(L.ConvTranspose2d, 3, (2, 1), 1, (1, 2), 2), (1, 4, 5, 4)),
    "transposed3d": (_conv(L.ConvTranspose3d, 2, 2, (1, 0, 1), output_padding=1), (1, 2, 3, 2, 4)),
    "max_pool1d": (lambda: L.MaxPool(3, 2, 1), (2, 8, 3)),
    "max_pool2d": (lambda: L.MaxPool((2, 3)), (2, 5, 7, 3)),
    "max_pool3d": (lambda: L.MaxPool(2, 1), (1, 3, 4, 3, 2)),
    "avg_pool1d": (lambda: L.AvgPool(3, 2, 1), (2, 8, 3)),
    "avg_pool2d": (lambda: L.AvgPool((3, 2), 2, (1, 0)), (2, 5, 6, 3)),
    "avg_pool3d": (lambda: L.AvgPool(2), (1, 4, 4, 5, 2)),
    "batch_norm": (lambda: L.BatchNorm(3), (4, 5, 3)),
    "layer_norm": (lambda: L.LayerNorm(5), (3, 4, 5)),
    "group_norm": (lambda: L.GroupNorm(2, 6), (2, 4, 3, 6)),
    "instance_norm": (lambda: L.GroupNorm(6, 6), (2, 4, 3, 6)),
    "rms_norm": (lambda: L.RMSNorm(5), (3, 4, 5)),
    "attention": (lambda: L.MultiHeadAttention(8, 4), (2, 5, 8)),
    "attention_causal": (lambda: L.MultiHeadAttention(6, 2, bias=False), (2, 4, 6)),
    "lstm": (lambda: L.LSTM(3, 4), (2, 5, 3)),
    "lstm_sequences": (lambda: L.LSTM(3, 4, return_sequences=True, reverse=True), (2, 5, 3)),
    "gru": (lambda: L.GRU(3, 4), (2, 5, 3)),
    "gru_both_ways": (
        lambda: L.Bidirectional(
            L.GRU(3, 2, return_sequences=True), L.GRU(3, 2, return_sequences=True, reverse=True)
        ),
        (2, 4, 3),
    ),
    "rnn": (lambda: L.SimpleRNN(3, 4, return_sequences=True), (2, 5, 3)),
}  # fmt: skip


def called(name: str, layer: Any, x: Any) -> Any:
    """What the layer of a case makes of x."""
    return layer(x, causal=True) if name == "attention_causal" else layer(x)
