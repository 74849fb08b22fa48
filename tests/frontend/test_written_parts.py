"""Parts that are written one after the other along one dim are joined once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.frontend.numpy.trace import record
from graphc.runtime.backends.reference import interpret

SHAPE = (3, 6, 4)


def key(rng: np.random.Generator, dim: int) -> tuple[Any, ...]:
    """A key of one run of entries along a dim, or of one entry."""
    low = int(rng.integers(-6, 6)) if dim == 1 else int(rng.integers(0, SHAPE[dim]))
    part: Any = slice(low, low + int(rng.integers(1, 4))) if rng.random() < 0.6 else low
    return (*(slice(None),) * dim, part)


def written(seed: int, x: Any, y: Any) -> Any:
    """Writes along mostly the same dim, which overlap, and reads between them."""
    rng = np.random.default_rng(seed)
    out, read = np.zeros_like(x) if seed % 2 else x * 1.0, 0.0
    for _ in range(int(rng.integers(2, 9))):
        at = key(rng, 1 if rng.random() < 0.8 else int(rng.integers(0, 3)))
        value = y[at] * float(rng.integers(1, 5))
        match int(rng.integers(0, 5)):
            case 0:
                out[at] = float(rng.integers(-3, 3))
            case 1:
                out[at] += value
            case 2:
                read = read + (out[at] * value).sum()
            case 3 if value.ndim == 3 and value.size:
                out[at] = value[:, :1]  # broadcast along the dim
            case _:
                out[at] = value
        if rng.random() < 0.1:
            out = out * 0.5
    return out + read


@pytest.mark.parametrize("part", range(4))
def test_writes_along_a_dim_are_those_of_numpy(part: int) -> None:
    rng = np.random.default_rng(part)
    x, y = (rng.integers(-9, 9, SHAPE).astype(np.float64) for _ in range(2))
    for seed in range(part * 25, part * 25 + 25):
        graph = record(lambda p, b, s=seed: {"out": written(s, b["x"], b["y"])}, {}, {"x": x, "y": y})  # fmt: skip
        found, _ = interpret(graph.graph, {"x": x, "y": y}, {})
        np.testing.assert_array_equal(found["out"], written(seed, x.copy(), y), err_msg=str(seed))


def test_a_loop_that_writes_rows_costs_what_a_stack_of_them_does() -> None:
    def step(params: Any, batch: Any) -> Any:
        x, out = batch["x"], np.zeros_like(batch["x"])
        for t in range(SHAPE[1]):
            out[:, t] = np.tanh(x[:, t])
        return {"out": np.sum(out)}

    with graphc.compile(step, {}, {"x": np.ones(SHAPE, np.float32)}) as trainer:
        ops = Counter(type(n.op).__name__ for n in trainer.graph(program="evaluate"))
    assert ops["Concat"] == 1 and ops["Select"] == 0, ops


def test_a_name_that_another_node_has_by_now_says_nothing_of_its_parts() -> None:
    def step(params: Any, batch: Any) -> Any:
        x = batch["x"]
        out = x * 1.0
        out[:, 0] = 1.0
        where = x * 3.0  # named by its line as the choice before was by its op
        select = x * 5.0
        for a in (where, select):
            a[:, 1] = 2.0
            a[:, 2] = 2.0
        return {"where": where, "select": select}

    x = np.arange(72.0).reshape(SHAPE)
    found, _ = interpret(record(step, {}, {"x": x}).graph, {"x": x}, {})
    for name, wanted in step({}, {"x": x}).items():
        np.testing.assert_array_equal(found[name], wanted)
