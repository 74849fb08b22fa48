"""Plans and graphs of every kind, small: what hostile inputs are made of."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

from graphc.compiler.driver import compile_module, stages
from graphc.frontend.language.load import load_module, module_of_source
from graphc.frontend.module import Module
from graphc.plan.plan import Plan
from graphc.strategies import parse_strategy
from graphc.text import print_ir

EXAMPLES = Path(__file__).parents[2] / "examples"
ROWS = 12  # examples in each file of data

LONG = """
step long(x: f32[batch, 6], y: i32[batch]) {
    param w1: f32[6, 8] = he_normal()
    param b1: f32[8]    = zeros()
    param w2: f32[8, 4] = glorot_uniform()
    state seen: i32     = 0
    h      = dropout(tanh(dense(x, w1, b1)), 0.25)
    logits = h @ w2
    loss   = mean(cross_entropy(logits, y))
    seen <- seen + 1
    minimize loss with clip_by_global_norm(1.0) | adamw(linear_warmup(1e-2, 10, cosine_decay(1e-2, 170)))
    report accuracy = mean(argmax(logits, axis=-1) == y)
}
"""
MLP = """
step mlp(x: f32[batch, 6], y: i32[batch]) {
    param w1: f32[6, 8] = he_normal()
    param w2: f32[8, 4] = glorot_uniform()
    state seen: i32     = 0
    h    = dropout(tanh(x @ w1), 0.25)
    loss = mean(cross_entropy(h @ w2, y))
    seen <- seen + 1
    minimize loss with sgd(0.1, momentum=0.9)
}
"""
TABLE = """
step table(ids: i32[batch, 3], y: i32[batch]) {
    param e: f32[24, 4] = normal(0.3)
    param w: f32[4, 4]  = glorot_uniform()
    rows   = mean(embedding(e, ids), axis=1)
    loss   = mean(cross_entropy(rows @ w, y))
    minimize loss with adagrad(0.1)
}
"""
CONV = """
step conv(x: f32[batch, 36], y: i32[batch]) {
    param k: f32[3, 3, 1, 4] = he_normal()
    param s: f32[4]          = ones()
    param t: f32[4]          = zeros()
    param w: f32[36, 4]      = glorot_uniform()
    image  = reshape(x, [batch, 6, 6, 1])
    h      = max_pool(relu(batch_norm(conv2d(image, k), s, t)))
    loss   = mean(cross_entropy(flatten(h, keep=1) @ w, y))
    minimize loss with sgd(0.1, momentum=0.9)
}
"""
MOVES = """
step moves(x: f32[batch, 6], y: i32[batch]) {
    param w: f32[6, 6] = glorot_normal()
    param v: f32[6]    = ones()
    h     = x @ transpose(w)
    a     = concat(h, x * v, axis=1)
    b     = cumsum(sort(a, axis=1), axis=1)[:, 1:11:2]
    c     = take_along_axis(b, argsort(b, axis=1), axis=1)
    d     = take(c, y, axis=1)
    e     = where(c > 0.5, c, -c)
    u     = stack(e, e * 2.0, axis=1)
    loss  = mean(square(u)) + 1e-3 * mean(square(d)) + 1e-3 * sum(logsumexp(e, axis=1))
    minimize loss with rmsprop(0.01)
}
"""
DATA = """
data train = npz("{0}", batch={1}, shuffle(seed=0))
data test  = npz("{0}", batch={1})
train for 3 steps
"""
SOURCES = {"long": LONG, "mlp": MLP, "table": TABLE, "conv": CONV, "moves": MOVES}
RUNS = {  # name -> (source, strategy, size of a batch)
    "alone": ("long", "one_device()", 6),
    "conv": ("conv", "one_device()", 4),
    "moves": ("moves", "one_device()", 4),
    "rows": ("table", "one_device()", 4),
    "mirrored": ("mlp", "mirrored(2) * accumulate(2)", 8),
    "hosts": ("mlp", "multi_worker_mirrored(2, 2)", 8),
    "rows2": ("table", "mirrored(2)", 5),
    "moves2": ("moves", "mirrored(2)", 5),
    "split": ("mlp", 'tensor_split(2, {"w1": 1, "w2": 0})', 4),
    "zero": ("mlp", "zero(2, 3)", 4),
    "store": ("mlp", "central_storage(2)", 4),
    "server": ("table", "parameter_server(2, 2)", 4),
    "free": ("mlp", "parameter_server(2, 1, staleness=1)", 4),
    "local": ("mlp", "local_sgd(2, 2)", 4),
    "diloco": ("mlp", "diloco(2, 2)", 4),
    "same": ("mlp", "mirrored(2) * reproducible(4)", 8),
    "same_rows": ("table", "mirrored(2) * reproducible(4)", 8),
    "tiles": ("mlp", 'mirrored(2) * tensor_split(1, {"w1": 1}) * reproducible(4, 2)', 8),
}


def write_data(folder: Path) -> None:
    """The files of data that the plans name."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, ROWS).astype(np.int32)
    for name in SOURCES:
        width = 36 if name == "conv" else 6
        x = rng.normal(size=(ROWS, width)).astype(np.float32)
        ids = rng.integers(0, 24, (ROWS, 3)).astype(np.int32)
        rest = {"ids": ids} if name == "table" else {"x": x}
        np.savez(folder / f"{name}.npz", y=y, **rest)


@cache
def plan(name: str, folder: Path) -> Plan:
    """One of the plans, on the data in a folder."""
    source, strategy, batch = RUNS[name]
    text = SOURCES[source] + DATA.format(folder / f"{source}.npz", batch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = module_of_source(text, str(folder / f"{source}.gc"))
        return compile_module(module, parse_strategy(strategy))


def plans(folder: Path) -> Iterator[tuple[str, Plan]]:
    """All of them, by name."""
    for name in RUNS:
        yield name, plan(name, folder)


GRAPHS = (*RUNS, *(file.stem for file in sorted(EXAMPLES.glob("*.gc"))))


@cache
def graphs(name: str, folder: Path) -> list[str]:
    """The graph of a plan's source, or of an example, as text after several passes."""
    if name not in RUNS:
        return list(_stages(load_module(EXAMPLES / f"{name}.gc"), ""))
    source, strategy, batch = RUNS[name]
    text = SOURCES[source] + DATA.format(folder / f"{source}.npz", batch)
    write_data(folder)
    return list(_stages(module_of_source(text, str(folder / f"{source}.gc")), strategy))


def _stages(module: Module, strategy: str) -> Iterator[str]:
    how = parse_strategy(strategy) if strategy else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = dict(stages(module, how, "train"))
    for name in ("source", "differentiate", "partition", "bucket"):
        if name in found:
            yield print_ir(found[name], locs=name != "source")
