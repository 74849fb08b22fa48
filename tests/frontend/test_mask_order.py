"""One value for each entry that a traced mask chooses: NumPy's order, gradients, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.support.errors import GraphcError, GraphcWarning

cases = SimpleNamespace(**run_path(str(Path(__file__).with_name("numpy_cases.py"))))
real = cases.real

X = real(3, 4, 2)
MASK, ROWS, COLUMNS = X[..., 0] > 0.2, np.array([True, False, True]), np.array([True] * 3 + [False])
N = int(MASK.sum())


def written(change: Callable[..., None]) -> Callable[..., Any]:
    """What the arrays are after a change of the first one."""

    def call(*arrays: Any) -> list[Any]:
        mine = [a.copy() for a in arrays]
        change(*mine)
        return mine

    return call


def put(x: Any, key: Any, v: Any) -> None:
    x[key] = v


def plus(x: Any, key: Any, v: Any) -> None:
    x[key] += v


CHANGES: dict[str, tuple[Callable[..., None], tuple[np.ndarray, ...]]] = {
    "of all dims": (lambda x, m, v: put(x, m, v), (X, X > 0, real(int((X > 0).sum())))),
    "of two dims": (lambda x, m, v: put(x, m, v), (X, MASK, real(N, 2))),
    "one number each": (lambda x, m, v: put(x, m, v), (X, MASK, real(N, 1))),
    "none of its own": (lambda x, m, v: put(x, m, v), (X, MASK, real(2))),
    "more dims of 1": (lambda x, m, v: put(x, m, v), (X, MASK, real(1, 1, N, 2))),
    "of rows": (lambda x, m, v: put(x, m, v), (X, ROWS, real(2, 4, 2))),
    "behind a slice": (lambda x, m, v: put(x, (slice(None), m), v), (X, COLUMNS, real(3, 3, 2))),
    "behind a part": (lambda x, m, v: put(x, (slice(1, 3), m), v), (X, COLUMNS, real(2, 3, 2))),
    "beside an integer": (lambda x, m, v: put(x, (m, slice(None), 1), v), (X, ROWS, real(2, 4))),
    "not adjacent": (lambda x, m, v: put(x, (1, slice(None), m), v), (X, X[0, 0] > -9, real(2, 4))),
    "last": (lambda x, m, v: put(x, (..., m), v), (X, X[0, 0] > -9, real(3, 4, 2))),
    "a list": (lambda x, m: put(x, m, [[1.0, 2.0]] * N), (X, MASK)),
    "constants": (lambda x, m: put(x, m, real(N, 2)), (X, MASK)),
    "integers": (lambda x, m, v: put(x, m, v), (cases.ints(3, 4, 2), MASK, cases.ints(N, 2))),
    "added": (lambda x, m, v: plus(x, m, v), (X, MASK, real(N, 2))),
    "added, a constant": (lambda x, m: plus(x, m, real(N, 1)), (X, MASK)),
    "computed with": (lambda x, m, v: put(x, m, 1 / (v - x[m]) + v), (X, MASK, real(N, 2))),
    "chosen by": (lambda x, m, v: put(x, m, np.where(v > 0, x[m], v)), (X, MASK, real(N, 2))),
    "no one chosen but one": (lambda x, m, v: put(x, m, v), (X[0, 0], X[0, 0] > 9, real(1))),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_values_are_written_in_the_order_of_the_entries(name: str) -> None:
    change, arrays = CHANGES[name]
    cases.check(written(change), *arrays)


def test_values_meet_entries_in_their_order() -> None:
    cases.check(lambda x, m, v: (x[m] * v).sum(), X, MASK, real(N, 2))
    cases.check(lambda x, m, v: np.mean(v - x[m]), X, MASK, real(N, 2))


def loss(params: Any, batch: Any) -> Any:
    x, y = batch["x"].copy(), batch["x"].copy()
    mask = x > 0
    x[mask] = params["v"]
    y[mask] *= params["v"]
    return np.mean(x**2) + np.mean(np.sin(y))


def test_gradients_reach_the_values_and_another_number_of_entries_is_an_error() -> None:
    x = real(6, 4)
    v = real(int((x > 0).sum()), seed=1)
    with (
        pytest.warns(GraphcWarning, match="G0832"),
        graphc.compile(loss, {"v": v}, {"x": x}, optimizer=graphc.optim.sgd(1.0)) as trainer,
    ):
        trainer.step({"x": x})
        found = v - trainer.variables("param")["v"]
        for wrong in (-x, np.abs(x), -np.abs(x), np.where(x == x.max(), -1, x)):
            with pytest.raises(GraphcError) as caught:
                trainer.step({"x": wrong})
            assert caught.value.code == "G0506"
    ends = [[loss({"v": v + h * e}, {"x": x}) for h in (1e-6, -1e-6)] for e in np.eye(len(v))]
    np.testing.assert_allclose(found, [(a - b) / 2e-6 for a, b in ends], atol=1e-8)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda x, m: put(x, m, np.ones((0, 2))), "G0804"),
        (lambda x, m: put(x, m, np.ones((N, 3))), "G0810"),
        (lambda x, m: put(x, m, np.ones((2, N, 2))), "G0810"),
        (lambda x, m: plus(x, m, np.ones((2, N, 2))), "G0805"),
        (lambda x, m: plus(x, m, np.ones((N, 3))), "G0203"),
        (lambda x, m: put(x, ~m, np.ones((N, 2)) + x[m]), "G0805"),
        (lambda x, m: plus(x, (slice(None), m[0]), np.ones(2)), "G0805"),
        (lambda x, m: np.add(np.ones((N, 2)), x[m], out=x[:, 0]), "G0805"),
    ],
)
def test_values_that_do_not_fit_are_refused(change: Callable[..., None], code: str) -> None:
    with pytest.raises(GraphcError) as caught:
        cases.traced(written(change), X, MASK)
    assert caught.value.code == code, caught.value.render()
