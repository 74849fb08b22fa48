"""`np.sum([a, b])` of traced values: functions that take an array take a list of them, as NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from frontend.numpy_cases import check, real, traced

import graphc
from graphc.frontend.numpy.stand_ins import _arrays, _dispatched
from graphc.support.errors import GraphcError

A = real(3, 4)
NAMES = {
    "np": [n for n in _dispatched(np) if _arrays(getattr(np, n), 1) == [True]],
    "np.linalg": [n for n in _dispatched(np.linalg) if _arrays(getattr(np.linalg, n), 1) == [True]],
}
EVERY = [f"{module}.{name}" for module, names in NAMES.items() for name in names]


def call(name: str, of: str) -> Any:
    """A function of x that calls one of NumPy's, which is looked up as users' code does."""
    return eval(f"lambda x: {name}({of})", {"np": np})


def works(name: str, of: str, listed: str) -> bool:
    """Whether a function can be traced for an array, and NumPy takes a list."""
    try:
        call(name, listed)(A)
        traced(call(name, of), A)
    except (GraphcError, TypeError, AttributeError, ValueError):  # or it needs a second argument
        return False
    return True


def test_most_functions_are_asked() -> None:
    assert len(EVERY) > 100


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", EVERY)
def test_a_list_of_traced_values_is_an_array(name: str) -> None:
    for of, listed in (("x", "[x[0], x[1], x[2]]"), ("x[0]", "(x[0, 0], x[0, 1], 2.0)")):
        if works(name, of, listed):
            check(call(name, listed), A)


@pytest.mark.parametrize("text", ["np.dot([x[0, 0], 1.0], [2.0, x[0, 1]])", "np.outer([x[0, 0]], x[1])",
    "np.average([x[0], x[1]], 0, [1.0, x[0, 0] ** 2])", "np.linalg.norm([x[0, 0], x[0, 1]])",
    "np.sum([[x[0, 0], 1], [2, x[1, 1]]], axis=0)", "np.array([x[0, 0], 2.0]) @ np.array([1.0, x[0, 1]])",
    "np.stack([x, x])", "np.hstack([x[0, 0], x[0]])", "np.sum([1.0, 2.0]) * x",
])  # fmt: skip
def test_calls_with_lists(text: str) -> None:
    check(eval(f"lambda x: {text}", {"np": np}), A)


def test_lists_have_gradients() -> None:
    def loss(params: Any, batch: Any) -> Any:
        a, b = params["w"]
        return np.sum([a**2, 3 * b]) + np.max([a, b])

    trainer = graphc.compile(
        loss, {"w": np.array([1.0, 2.0])}, {"x": np.zeros(2)}, optimizer=graphc.optim.sgd(1.0)
    )
    assert trainer.step({"x": np.zeros(2)})["loss"] == 9.0
    assert trainer.params["w"].tolist() == [-1.0, -2.0]


TABLES: dict[str, Any] = {
    "by a mask": lambda x: _filled(x[0]),
    "by an array": lambda x: _looked_up(np.argmax(x, axis=1)) + x[:, 0],
}


def _filled(x: Any) -> Any:
    out = np.zeros(4)
    out[x > 0] -= np.log(x[x > 0])
    return out


def _looked_up(i: Any) -> Any:
    table = np.arange(4.0)
    return table[i]


@pytest.mark.parametrize("name", TABLES)
def test_arrays_that_a_step_makes_are_looked_up_in(name: str) -> None:
    check(TABLES[name], A)
