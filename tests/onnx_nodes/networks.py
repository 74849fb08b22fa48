"""Norms, losses, attention, recurrent networks."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx_nodes.table import Call, NotOffered, onnx
from onnx_nodes.windows import first, last

from graphc import nn


def inner(x: Any, axis: int) -> tuple[int, ...]:
    """The dims from `axis` on."""
    return tuple(range(axis + x.ndim if axis < 0 else axis, x.ndim))


@onnx("LayerNormalization")
def layer_norm(c: Call, x: Any, scale: Any, bias: Any = None) -> Any:
    axes, eps = inner(x, c.get("axis", -1)), c.get("epsilon", 1e-5)
    y = nn.layer_norm(x, scale, bias, axis=axes, eps=eps)
    if c.results == 1:
        return y
    mean = np.mean(x, axis=axes, keepdims=True)
    return y, mean, 1 / np.sqrt(np.var(x, axis=axes, keepdims=True) + eps)


@onnx("RMSNormalization")
def rms_norm(c: Call, x: Any, scale: Any) -> Any:
    return nn.rms_norm(x, scale, axis=inner(x, c.get("axis", -1)), eps=c.get("epsilon", 1e-5))


@onnx("BatchNormalization")
def batch_norm(c: Call, x: Any, scale: Any, bias: Any, mean: Any, var: Any) -> Any:
    shape, eps, results = (-1,) + (1,) * (x.ndim - 2), c.get("epsilon", 1e-5), ()
    if c.get("training_mode"):
        axes, m = (0, *range(2, x.ndim)), c.get("momentum", 0.9)
        now, spread = np.mean(x, axis=axes), np.var(x, axis=axes)
        results = (mean * m + now * (1 - m), var * m + spread * (1 - m))
        mean, var = now, spread
    y = (x - mean.reshape(shape)) / np.sqrt(var.reshape(shape) + eps)
    y = y * scale.reshape(shape) + bias.reshape(shape)
    return (y, *results)[: c.results] if c.results > 1 else y


@onnx("InstanceNormalization")
def instance_norm(c: Call, x: Any, scale: Any, bias: Any) -> Any:
    return first(nn.instance_norm(last(x), scale, bias, eps=c.get("epsilon", 1e-5)))


@onnx("GroupNormalization")
def group_norm(c: Call, x: Any, scale: Any, bias: Any) -> Any:
    groups, eps = c["num_groups"], c.get("epsilon", 1e-5)
    return first(nn.group_norm(last(x), groups, scale, bias, eps))


@onnx("MeanVarianceNormalization")
def mean_variance(c: Call, x: Any) -> Any:
    axes = tuple(c.get("axes", (0, 2, 3)))
    return (x - np.mean(x, axis=axes, keepdims=True)) / (np.std(x, axis=axes, keepdims=True) + 1e-9)


@onnx("LpNormalization")
def lp_norm(c: Call, x: Any) -> Any:
    axis = c.get("axis", -1)
    norm = np.linalg.norm(x, ord=c.get("p", 2), axis=axis, keepdims=True)
    return np.where(norm == 0, 0, x / np.where(norm == 0, 1, norm))


@onnx("LRN")
def lrn(c: Call, x: Any) -> Any:
    n = c["size"]
    square = np.pad(np.square(x), [(0, 0), ((n - 1) // 2, n // 2), (0, 0), (0, 0)])
    seen = nn.windows(square, at=(1,), sizes=(n,), strides=(1,), dilations=(1,))
    total = np.sum(seen, axis=-1)
    return x / (c.get("bias", 1.0) + c.get("alpha", 1e-4) / n * total) ** c.get("beta", 0.75)


@onnx("Dropout", static=(1, 2))
def dropout(c: Call, x: Any, ratio: Any = None, training: Any = None) -> Any:
    if training is not None and bool(training) and (ratio is None or float(ratio) > 0):
        raise NotOffered("random numbers of another generator")
    return (x, np.ones_like(x, bool)) if c.results > 1 else x


# -- losses ---------------------------------------------------------------------------------------


@onnx("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(c: Call, scores: Any, labels: Any, weights: Any = None) -> Any:
    logs = nn.log_softmax(scores, axis=1)
    loss = nll(c, logs, labels, weights)
    return (loss, logs) if c.results > 1 else loss


@onnx("NegativeLogLikelihoodLoss")
def nll(c: Call, logs: Any, labels: Any, weights: Any = None) -> Any:
    ignored = labels == c.get("ignore_index", -(2**31))
    labels = np.astype(np.where(ignored, 0, labels), np.int32)
    picked = np.take_along_axis(logs, np.expand_dims(labels, 1), 1)
    loss = -np.squeeze(picked, 1)
    each = np.take(weights, labels) if weights is not None else np.ones_like(loss)
    each = np.where(ignored, 0, each)
    loss = np.where(ignored, 0, loss * each)
    match c.get("reduction", b"mean"):
        case b"none":
            return loss
        case b"sum":
            return np.sum(loss)
        case _:
            return np.sum(loss) / np.sum(each)


# -- attention ------------------------------------------------------------------------------------


@onnx("RotaryEmbedding")
def rotary(c: Call, x: Any, cos: Any, sin: Any, ids: Any = None) -> Any:
    flat = x.ndim == 3
    if flat:
        x = np.moveaxis(x.reshape(*x.shape[:2], c["num_heads"], -1), 2, 1)
    size = c.get("rotary_embedding_dim", 0) or x.shape[-1]
    turned, rest = x[..., :size], x[..., size:]
    if ids is not None:
        cos, sin = cos[ids], sin[ids]
    cos, sin = np.expand_dims(cos[..., : size // 2], 1), np.expand_dims(sin[..., : size // 2], 1)
    y = nn.rotate_pairs(turned, cos, sin, bool(c.get("interleaved", 0)))
    y = np.concatenate([y, rest], -1)
    return np.moveaxis(y, 1, 2).reshape(x.shape[0], x.shape[2], -1) if flat else y


@onnx("Attention")
def attention(
    c: Call, q: Any, k: Any, v: Any, mask: Any = None, past_k: Any = None, past_v: Any = None,
    lengths: Any = None, *more: Any,
) -> Any:  # fmt: skip
    flat = q.ndim == 3
    if flat:
        q, k, v = (heads(x, c["q_num_heads" if x is q else "kv_num_heads"]) for x in (q, k, v))
    if past_k is not None:
        k, v = np.concatenate([past_k, k], 2), np.concatenate([past_v, v], 2)
    kept = k, v
    scale = c.get("scale", 1 / np.sqrt(np.float32(q.shape[-1])))
    times = q.shape[1] // k.shape[1]
    if times > 1:
        k, v = np.repeat(k, times, 1), np.repeat(v, times, 1)
    root = np.astype(np.sqrt(scale), q.dtype)
    scores = (q * root) @ (np.swapaxes(k, -1, -2) * root)
    past = 0 if past_k is None else past_k.shape[2]
    y, shown = weighted(c, scores, v, mask, past, lengths)
    if flat:
        y = np.moveaxis(y, 1, 2).reshape(y.shape[0], y.shape[2], -1)
    return (y, *kept, shown)[: c.results] if c.results > 1 else y


def heads(x: Any, n: int) -> Any:
    return np.moveaxis(x.reshape(*x.shape[:2], n, -1), 2, 1)


def weighted(c: Call, scores: Any, v: Any, mask: Any, past: int, lengths: Any) -> tuple[Any, Any]:
    """Softmax of masked scores times v, and the scores as asked to be shown."""
    stages = [scores]
    soft = c.get("softcap", 0.0)
    bias = seen(c, scores, mask, past, lengths)
    scores = soft * np.tanh(scores / soft) if soft else scores
    stages.append(scores)
    scores = scores if bias is None else scores + bias
    stages.append(scores)
    p = nn.softmax(scores, axis=-1)
    if bias is not None:
        p = np.where(np.isnan(p), 0, p)
    stages.append(p)
    return p @ v, stages[c.get("qk_matmul_output_mode", 0)]


def seen(c: Call, scores: Any, mask: Any, past: int, lengths: Any) -> Any:
    """What is added to the scores: 0, or minus infinity where a key is hidden; None for nothing."""
    dtype, (rows, cols) = scores.dtype, scores.shape[-2:]
    total: Any = None
    if mask is not None:
        if mask.dtype.kind == "b":
            mask = np.where(mask, np.zeros((), dtype), np.array(-np.inf, dtype))
        short = cols - mask.shape[-1]
        if short:
            widths = [(0, 0)] * (mask.ndim - 1) + [(0, short)]
            mask = np.pad(mask, widths, constant_values=-np.inf)
        total = mask
    left, right = c.get("left_window_size", -1), c.get("right_window_size", -1)
    before: Any = past if lengths is None else np.reshape(lengths, (-1, 1, 1, 1)) - rows
    ahead = np.arange(cols) - np.arange(rows)[:, None] - before  # how far a key is in front
    rules = [ahead > 0] * bool(c.get("is_causal", 0)) + [ahead < -left] * (left >= 0)
    for hidden in rules + [ahead > right] * (right >= 0):
        bias = np.where(hidden, np.array(-np.inf, dtype), np.zeros((), dtype))
        total = bias if total is None else total + bias
    if lengths is not None:
        shown = np.arange(cols) < np.reshape(lengths, (-1, 1, 1, 1))
        pads = np.where(shown, np.zeros((), dtype), np.array(-np.inf, dtype))
        total = pads if total is None else total + pads
    return total


# -- recurrent networks ---------------------------------------------------------------------------


def unrolled(c: Call, x: Any, gates: int, step: Any, states: list[Any], weights: Any) -> Any:
    """Steps in time for one direction; all values of the first state, and the last of each."""
    if c.get("direction", b"forward") not in (b"forward", b"reverse") or c.get("clip"):
        raise NotOffered("both directions, clipping")
    w, r, b = weights
    n = c["hidden_size"]
    bias = np.zeros(2 * gates * n, np.float32) if b is None else b[0]
    order = range(x.shape[0])
    found = []
    for t in reversed(order) if c.get("direction") == b"reverse" else order:
        states = step(x[t] @ w[0].T + bias[: gates * n], r[0].T, bias[gates * n :], states)
        found.append(states[0])
    every = np.expand_dims(np.stack(found[::-1] if c.get("direction") == b"reverse" else found), 1)
    return every, states


def recurrent(
    c: Call, x: Any, gates: int, step: Any, states: list[Any], weights: Any, lengths: Any
) -> Any:
    """The results of a node: ONNX's layout 0 has the time first, layout 1 the batch."""
    if lengths is not None:
        raise NotOffered("lengths of sequences")
    layout = c.get("layout", 0)
    x = np.swapaxes(x, 0, 1) if layout else x
    shape = (x.shape[1], c["hidden_size"])
    states = [
        np.zeros(shape, np.float32) if s is None else (s[:, 0] if layout else s[0]) for s in states
    ]
    every, states = unrolled(c, x, gates, step, states, weights)
    ends = [np.expand_dims(s, 1 if layout else 0) for s in states]
    return (np.moveaxis(every, 2, 0) if layout else every, *ends)


@onnx("RNN")
def rnn(c: Call, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None) -> Any:
    def step(z: Any, r: Any, b: Any, states: Any) -> Any:
        return [np.tanh(z + states[0] @ r + b)]

    return recurrent(c, x, 1, step, [h], (w, r, b), lengths)


@onnx("GRU")
def gru(c: Call, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None) -> Any:
    n, first = c["hidden_size"], c.get("linear_before_reset", 0)

    def step(z: Any, r: Any, b: Any, states: Any) -> Any:
        (h,) = states
        gates = nn.sigmoid(z[:, : 2 * n] + h @ r[:, : 2 * n] + b[: 2 * n])
        update, reset = gates[:, :n], gates[:, n:]
        if first:
            new = np.tanh(z[:, 2 * n :] + reset * (h @ r[:, 2 * n :] + b[2 * n :]))
        else:
            new = np.tanh(z[:, 2 * n :] + (reset * h) @ r[:, 2 * n :] + b[2 * n :])
        return [(1 - update) * new + update * h]

    return recurrent(c, x, 3, step, [h], (w, r, b), lengths)


@onnx("LSTM")
def lstm(
    c: Call, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None,
    cell: Any = None, peep: Any = None,
) -> Any:  # fmt: skip
    n = c["hidden_size"]
    p = np.zeros(3 * n, np.float32) if peep is None else peep[0]

    def step(z: Any, r: Any, b: Any, states: Any) -> Any:
        h, cell = states
        z = z + h @ r + b
        i = nn.sigmoid(z[:, :n] + p[:n] * cell)
        f = nn.sigmoid(z[:, 2 * n : 3 * n] + p[2 * n :] * cell)
        cell = f * cell + i * np.tanh(z[:, 3 * n :])
        o = nn.sigmoid(z[:, n : 2 * n] + p[n : 2 * n] * cell)
        return [o * np.tanh(cell), cell]

    return recurrent(c, x, 4, step, [h, cell], (w, r, b), lengths)
