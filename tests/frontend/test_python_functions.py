"""Python's max, min and len of traced numbers: what they give for numbers."""

from __future__ import annotations

import builtins
import itertools
import threading
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.support.errors import GraphcError

CALLS: dict[str, Any] = {
    "max(1e-15, a)": lambda a, b, w: max(1e-15, a),
    "max(a, 1e-15)": lambda a, b, w: max(a, 1e-15),
    "min(a, b)": lambda a, b, w: min(a, b),
    "max(0, a, b)": lambda a, b, w: max(0, a, b),
    "min of a list": lambda a, b, w: min([a, 0.5, b]),
    "max of a generator": lambda a, b, w: max(x * x for x in (a, b)),
    "max of an array": lambda a, b, w: max(w),
    "min of abs": lambda a, b, w: min(abs(w)),
    "of what is 0-d": lambda a, b, w: max(np.array(0.25), a, np.float32(0.125)),
}
NUMBERS = [-2.0, -0.0, 0.0, 0.5, np.nan]


@pytest.mark.parametrize("name", CALLS)
def test_max_and_min_choose_as_pythons_do(name: str) -> None:
    """Of equal ones the first; a NaN by its place."""
    call, dtype = CALLS[name], (np.float32, np.float64)[len(name) % 2]

    def step(params: Any, batch: Any) -> Any:
        w = params["w"]
        for i, (k, m) in enumerate(pairs):
            graphc.report(f"y{i}", call(w[k], w[m], w[k : m + 1] if k <= m else w[m : k + 1]))
        return w[3] * 1.0

    pairs = list(itertools.product(range(len(NUMBERS)), repeat=2))
    w = np.array(NUMBERS, dtype)
    trainer = graphc.compile(
        step, {"w": w}, {"x": np.zeros(2, dtype)}, optimizer=graphc.optim.sgd(0.1)
    )
    found = trainer.step({"x": np.zeros(2, dtype)})
    for i, (k, m) in enumerate(pairs):
        wanted = dtype(call(w[k], w[m], w[k : m + 1] if k <= m else w[m : k + 1]))
        got = dtype(found[f"y{i}"])
        assert got.tobytes() == wanted.tobytes() or (np.isnan(got) and np.isnan(wanted)), (k, m)


def test_the_gradient_goes_to_what_is_chosen() -> None:
    def loss(params: Any, batch: Any) -> Any:
        a, b, c = params["w"]
        return max(1e-15, a) + min(b, c, 0.5) + 3 * max(b, b)

    w = np.array([2.0, 1.0, -3.0])
    batch = {"x": np.zeros(2)}
    trainer = graphc.compile(loss, {"w": w}, batch, optimizer=graphc.optim.sgd(1.0))
    trainer.step(batch)
    assert (w - trainer.params["w"]).tolist() == [1.0, 3.0, 1.0]


@pytest.mark.parametrize(
    "call",
    [
        lambda w: max(w, w), lambda w: min(w, 0.0), lambda w: max([w, w]),
        lambda w: max(w, key=lambda x: x),
    ],
)  # fmt: skip
def test_arrays_are_refused_as_numpy_refuses_them(call: Any) -> None:
    with pytest.raises(ValueError, match="ambiguous"):
        call(np.ones(3)) if call(np.ones(1)) is None else call(np.ones((3, 2)))
    with pytest.raises(GraphcError, match="neither true nor false"):
        graphc.compile(
            lambda params, batch: np.sum(call(params["w"])), {"w": np.ones((3, 2))},
            {"x": np.zeros(2)}, optimizer=graphc.optim.sgd(1.0),
        )  # fmt: skip


def test_what_is_not_traced_is_pythons_own() -> None:
    found: list[Any] = []

    def look() -> None:
        found.append((max(3, 1), min("b", "a"), max([1, 2], key=lambda x: -x), min([], default=7)))
        found.append((len([1]), max(iter((4, 5)))))
        for wrong in (lambda: max([]), lambda: max(3), lambda: min()):
            with pytest.raises((ValueError, TypeError)):
                wrong()

    def loss(params: Any, batch: Any) -> Any:
        look()
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        return params["w"] * 1.0

    own = builtins.max, builtins.min, builtins.len
    batch = {"x": np.zeros(2)}
    graphc.compile(loss, {"w": np.ones(())}, batch, optimizer=graphc.optim.sgd(1.0))
    assert found == [(3, "a", 1, 7), (1, 5)] * (len(found) // 2) and len(found) >= 4
    assert (builtins.max, builtins.min, builtins.len) == own
