"""What the user's Python functions compute has the scope of their call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import graphc
from graphc import nn
from graphc.frontend.numpy.trace import trace
from graphc.layers import Dense

X = np.ones((4, 4), np.float32)


def scopes(step: Any, params: Any = None) -> list[str]:
    graph = trace(step, {} if params is None else params, {"x": X})
    return list(dict.fromkeys(node.scope for node in graph if node.scope))


def inner(x: Any) -> Any:
    return np.tanh(x) + 1


def block(x: Any) -> Any:
    return inner(nn.exp(x)) * inner(x)


def test_each_call_of_a_function_is_a_scope() -> None:
    def step(params: Any, batch: Any) -> Any:
        return np.sum(block(block(batch["x"])))

    found = scopes(step)
    assert found[:3] == ["block", "block/inner", "block/inner.1"]
    assert found[3:6] == ["block.1", "block.1/inner", "block.1/inner.1"]
    assert not any("step" in scope for scope in found)


def test_lambdas_and_comprehensions_are_part_of_their_function() -> None:
    def step(params: Any, batch: Any) -> Any:
        return sum((lambda y: np.sum(np.exp(y)))(batch["x"] * i) for i in range(2))

    assert all("<" not in scope for scope in scopes(step))


def test_an_object_that_is_called_has_its_place_among_the_parameters() -> None:
    @dataclass
    class Residual:
        dense: Dense

        def __call__(self, x: Any) -> Any:
            return x + self.dense(x)

    def step(model: Any, batch: Any) -> Any:
        for part in model["parts"]:
            batch = {"x": part(batch["x"])}
        return np.sum(batch["x"])

    found = scopes(step, {"parts": [Residual(Dense(4, 4)), Residual(Dense(4, 4))]})
    assert found[:2] == ["parts.0/parts.0.dense/dense", "parts.0"]
    assert found[2:4] == ["parts.1/parts.1.dense/dense", "parts.1"]


def test_random_numbers_do_not_depend_on_the_function_that_draws_them() -> None:
    def drop(x: Any) -> Any:
        return nn.dropout(x, rate=0.5)

    def outside(params: Any, batch: Any) -> Any:
        return np.sum(nn.dropout(batch["x"], rate=0.5))

    def inside(params: Any, batch: Any) -> Any:
        return np.sum(drop(batch["x"]))

    keys = [
        next(n.op.attributes["key"] for n in trace(step, {}, {"x": X}) if n.op.name == "random")
        for step in (outside, inside)
    ]
    assert keys[0] == keys[1]


def test_a_function_called_endlessly_deep_is_traced() -> None:
    def down(x: Any, depth: int) -> Any:
        return x + 1 if depth == 0 else down(x * 1.5, depth - 1)

    def step(params: Any, batch: Any) -> Any:
        return np.sum(down(batch["x"], 60))

    assert max(scope.count("/") for scope in scopes(step)) < 30
    assert graphc.trace is trace
