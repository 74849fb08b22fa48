"""What a step of a workload must do at least, from its shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

PASSES = {"adam": 6, "momentum": 4, "sgd": 2}  # of a weight through memory in an update

FIRST = {"tiny": "w0", "mlp": "w0", "wide": "w0", "cnn": "k0", "lstm": "wx"}  # reads the batch


def flops(name: str, w: Any) -> float:
    """Of the products: forward, and the gradients of a weight and of what it multiplies, which for
    the batch itself is not made; and those of attention."""
    shape = next(iter(w.batches[0].values())).shape
    tokens = float(np.prod(shape[:2])) if name in ("transformer", "gpt") else float(shape[0])
    total = 0.0
    for key, value in w.weights.items():
        if value.ndim > 1 and key not in w.rows and not _looked_up(name, key, w):
            each = 4 if key == FIRST.get(name) else 6
            total += each * value.size * tokens * _times(name, key, shape)
    if name in ("transformer", "gpt"):
        width, blocks = w.weights["letters"].shape[1], sum(k.endswith("ow0") for k in w.weights)
        total += 6 * blocks * 2 * tokens * shape[1] * width  # of the whole square, as is usual
    return total


def _looked_up(name: str, key: str, w: Any) -> bool:
    """Whether a table is only looked up: that of a GPT is its head, too."""
    return key == "places" or (key == "letters" and "w0" in w.weights)


def _times(name: str, key: str, shape: tuple[int, ...]) -> int:
    """How often a weight is used for each example, or token."""
    if name == "lstm" and key in ("wx", "wh"):
        return shape[1]
    if name == "cnn" and key.startswith("k"):
        return shape[1] * shape[2] // (1 if key in ("k0", "k1") else 4)
    return 1


def bytes_moved(w: Any) -> float:
    """At least: the weights, in their update. Of tables, the rows that a step changes."""
    kind = "momentum" if w.optimizer[0] == "sgd" and w.optimizer[2] else w.optimizer[0]
    total = sum(float(x.nbytes) for k, x in w.weights.items() if k not in w.rows) * PASSES[kind]
    ids = [x for x in w.batches[0].values() if x.dtype.kind == "i"]
    for key, looked_up in zip(w.rows, ids, strict=False):
        total += 3.0 * looked_up.size * w.weights[key].shape[1] * w.weights[key].itemsize
    return total


def beyond_ceilings(found: Mapping[str, Any]) -> Iterator[str]:
    """What is to be told of shares that can't be."""
    for name in ("flops", "bytes"):
        if found.get(name, 0.0) > 1.0:
            yield f"the share of {name} is above 100%: what was measured is no ceiling of this step"
