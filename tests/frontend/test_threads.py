"""A thread that traces finds other functions in NumPy; all other threads find NumPy's own."""

from __future__ import annotations

import pickle
import threading
import types
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.frontend.numpy.trace import record

X = np.arange(12.0, dtype=np.float32).reshape(4, 3)
OWN = {
    "len": len, "zeros": np.zeros, "take": np.take, "arange": np.arange, "rand": np.random.rand,
    "eye": np.eye,
}  # fmt: skip


def found() -> dict[str, Any]:
    """What a thread finds under these names."""
    from numpy import eye

    return {
        "len": len, "zeros": np.zeros, "take": np.take, "arange": np.arange,
        "rand": np.random.rand, "eye": eye,
    }  # fmt: skip


def elsewhere(work: Callable[[], Any]) -> Any:
    """What a function returns in another thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def sized(params: Any, batch: Any) -> Any:
    """A step that is for any batch size only if np.zeros, np.arange and len take its length."""
    x = batch["x"]
    n = x.shape[0]
    rows = np.zeros((n, 3)) + np.arange(n)[:, None] / len(x)
    return np.sum(np.take(params["t"], np.zeros(n, np.int32), axis=0) * (rows + x))


PARAMS = {"t": np.ones((2, 3), np.float32)}


def test_another_thread_finds_the_functions_of_numpy_while_one_traces() -> None:
    seen: list[Any] = []

    def step(params: Any, batch: Any) -> Any:
        seen.append((found(), elsewhere(found), elsewhere(lambda: pickle.dumps(np.zeros))))
        return sized(params, batch)

    record(step, PARAMS, {"x": X})
    for mine, other, pickled in seen:
        assert all(mine[name] is not own for name, own in OWN.items())
        assert all(other[name] is own for name, own in OWN.items() if name != "len")
        assert pickle.loads(pickled) is OWN["zeros"]
    assert found() == OWN


def test_a_thread_that_calls_them_all_the_time_and_a_trace_leave_each_other_alone() -> None:
    expected = graphc.print_ir(graphc.trace(sized, PARAMS, {"x": X}))
    ended, wrong = threading.Event(), []

    def hammer() -> None:
        while not ended.is_set():
            a = np.zeros((len([1, 2]), 3))
            b = np.take(np.arange(5), [1, 3])
            if type(a) is not np.ndarray or a.shape != (2, 3) or b.tolist() != [1, 3]:
                wrong.append((a, b))
            np.random.rand(2)  # draws in a trace are warned of

    with warnings.catch_warnings(), ThreadPoolExecutor(2) as pool:
        warnings.simplefilter("error")
        work = [pool.submit(hammer) for _ in range(2)]
        traced = [graphc.print_ir(graphc.trace(sized, PARAMS, {"x": X})) for _ in range(5)]
        ended.set()
        for w in work:
            w.result()
    assert traced == [expected] * 5
    assert not wrong


def test_several_threads_trace_at_once() -> None:
    def traced(together: threading.Barrier) -> str:
        def step(params: Any, batch: Any) -> Any:
            together.wait(10)
            return sized(params, batch)

        return graphc.print_ir(graphc.trace(step, PARAMS, {"x": X}))

    with ThreadPoolExecutor(3) as pool:
        made = [*pool.map(traced, [threading.Barrier(3)] * 3)]
    assert made == [traced(threading.Barrier(1))] * 3
    assert found() == OWN


def test_what_somebody_replaces_meanwhile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def mine(*args: Any, **options: Any) -> Any:
        return OWN["zeros"](*args, **options)

    def step(params: Any, batch: Any) -> Any:
        elsewhere(lambda: monkeypatch.setattr(np, "zeros", mine))
        assert elsewhere(lambda: np.zeros) is mine and np.zeros(2).shape == (2,)
        return sized(params, batch)

    traced = record(step, PARAMS, {"x": X})
    assert np.zeros is mine and traced.exact is None
    monkeypatch.undo()
    assert found() == OWN


def test_an_error_in_the_function_leaves_nothing_behind() -> None:
    def step(params: Any, batch: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record(step, PARAMS, {"x": X})
    assert found() == OWN
    assert type(np) is types.ModuleType and type(np.random) is types.ModuleType


DRAWS = [
    lambda s: np.random.rand(*s), lambda s: np.random.binomial(1, 0.5, size=s),
    lambda s: np.random.randint(0, 2, s), lambda s: np.random.default_rng(0).random(s),
    lambda s: np.random.default_rng(0).normal(size=s), lambda s: np.random.RandomState(0).beta(1, 2, s),
    lambda s: np.random.permutation(s[0])[:, None], lambda s: np.random.choice(3, s[0])[:, None],
]  # fmt: skip


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.filterwarnings("ignore::graphc.support.errors.GraphcWarning")
def test_compiled_code_gets_numpys_own(draw: Any) -> None:
    """np.random makes its results with np.empty, and writes to what that returns unseen: into a
    traced array it would be any memory."""

    def step(params: Any, batch: Any) -> Any:
        drawn = draw(batch["x"].shape)
        assert type(drawn) is np.ndarray and len(drawn) == len(X)
        return np.mean(batch["x"] * drawn * params["t"][0])

    record(step, PARAMS, {"x": X})
    assert found() == OWN
