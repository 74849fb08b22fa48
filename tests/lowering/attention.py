"""A loss of self-attention, its weights and a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphc import nn


def attention(
    b: int, h: int, t: int, d: int, dtype: Any = np.float32, causal: bool = True,
    seen: int | None = None,
) -> tuple[Callable[..., Any], dict[str, Any], dict[str, Any]]:  # fmt: skip
    """Self-attention of h heads; seen: a mask leaves so many of the keys."""
    rng, n = np.random.default_rng(t), h * d
    weights = {k: (rng.standard_normal((n, n)) / np.sqrt(n)).astype(dtype) for k in "qkvo"}
    batch = {"x": rng.standard_normal((b, t, n)).astype(dtype)}
    mask = None if seen is None else np.arange(t) < seen

    def loss(p: Any, given: Any) -> Any:
        x = given["x"]
        heads = ((x @ p[k]).reshape(b, t, h, d).transpose(0, 2, 1, 3) for k in "qkv")
        y = nn.attention(*heads, mask=mask, causal=causal)
        y = y.transpose(0, 2, 1, 3).reshape(b, t, n) @ p["o"]
        return np.mean(np.square(y))

    return loss, weights, batch
