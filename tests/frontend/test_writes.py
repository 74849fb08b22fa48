"""Writes into arrays mean what they mean in NumPy: values, gradients, views, any batch, strategies.

Random programs of writes (written_programs.py) are run by NumPy, too. The other cases have the kinds
of keys and values that NumPy's own tests of assignments have (test_indexing, test_item_selection).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from frontend.written_programs import Program
from shares import dealt

import graphc
from graphc.frontend.numpy.memory import ArrayMemory
from graphc.frontend.numpy.trace import record
from graphc.support.errors import GraphcError
from graphc.testing.compute import evaluate

HERE = Path(__file__).parent
cases = SimpleNamespace(**run_path(str(HERE / "numpy_cases.py")))
law = SimpleNamespace(**run_path(str(HERE / "batch_law.py")))
check, traced, real = cases.check, cases.traced, cases.real
X, Y = real(4, 3), real(4, 3, seed=1)
Form = Callable[..., Any]


# -- random programs ------------------------------------------------------------------------------


def _results(program: Program, inputs: dict[str, Any]) -> list[Any] | None:
    """What a program gives when it is traced; None if it is refused."""

    def step(params: Any, batch: Any) -> dict[str, Any]:
        return {f"r{i}": y for i, y in enumerate(program(**batch))}

    try:
        made = record(step, {}, inputs, whole=["*"], data_dtype="float64")
    except GraphcError:
        return None
    values = evaluate(made.graph, made.inputs(inputs))
    return [values[node] for node in made.graph.outputs.values()]


def _wrong(seeds: range) -> tuple[list[str], int]:
    """The programs that give something else than NumPy, and how many are refused."""
    wrong, refused = [], 0
    for seed in seeds:
        program = Program(seed)
        found = _results(program, program.inputs)
        refused += found is None
        wanted = program(**program.inputs)
        same = partial(np.array_equal, equal_nan=True)  # NaN at the same places: means of nothing
        if found is not None and not all(map(same, found, wanted)):
            wrong.append(f"{seed}: " + "; ".join(program.text))
    return wrong, refused


@pytest.mark.parametrize(
    "first", [pytest.param(i, marks=pytest.mark.ci if i else ()) for i in range(0, 600, 60)]
)
@pytest.mark.filterwarnings("ignore")
def test_programs_of_writes_give_what_numpy_gives(first: int) -> None:
    wrong, refused = _wrong(range(first, first + 60))
    assert wrong == [] and refused < 15


# It has y[1] = y[:, 2], of which NumPy 2.4 overwrites an entry before it reads it.
OVERLAPS = "19396:"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_many_programs_of_writes_give_what_numpy_gives() -> None:
    wrong, _ = _wrong(range(10_000, 20_000))
    assert [x for x in wrong if not x.startswith(OVERLAPS)] == []


@pytest.mark.filterwarnings("ignore")
def test_the_law_sees_views_that_keep_the_old_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ArrayMemory, "read", lambda self, f: self.value)
    assert len(_wrong(range(40))[0]) > 3


def _weighted(program: Program, inputs: dict[str, Any]) -> Any:
    total: Any = 0.0
    for i, y in enumerate(program(**inputs)):
        total = total + np.sum(y * np.cos(np.arange(np.size(y)).reshape(np.shape(y)) + i))
    return total


@pytest.mark.parametrize(
    "first", [pytest.param(i, marks=pytest.mark.ci if i else ()) for i in range(0, 120, 15)]
)
@pytest.mark.filterwarnings("ignore")
def test_gradients_reach_what_is_written_and_what_is_left(first: int) -> None:
    """Of differences: the programs are linear between their kinks."""
    held = 0
    for seed in range(first, first + 15):
        program, rng = Program(seed), np.random.default_rng(seed)
        inputs = dict(program.inputs)
        for name in ("x", "y"):
            inputs[name] = inputs[name] + rng.uniform(0.1, 0.4, inputs[name].shape)

        def step(params: Any, batch: Any, program: Program = program) -> Any:
            def loss(arrays: Any) -> Any:
                return _weighted(program, {**batch, **arrays})

            return graphc.grad(loss)({"x": batch["x"], "y": batch["y"]})

        try:
            made = record(step, {}, inputs, whole=["*"], data_dtype="float64")
        except GraphcError:
            continue
        values = evaluate(made.graph, made.inputs(inputs))
        held += 1
        for name in ("x", "y"):
            slope, h = values[made.graph.outputs[name]].ravel(), 1e-6
            for i in range(min(6, slope.size)):
                ends = []
                for sign in (1, -1):
                    moved = inputs[name].copy()
                    moved.ravel()[i] += sign * h
                    ends.append(_weighted(program, {**inputs, name: moved}))
                difference = (ends[0] - ends[1]) / (2 * h)
                assert np.isclose(slope[i], difference, 1e-4, 1e-5), (seed, program.text)
    assert held > 9


# -- what NumPy says of keys and values -----------------------------------------------------------


def _written(key: Any, v: Any) -> Form:
    def call(x: Any) -> Any:
        y = x.copy()
        y[key] = v
        return y

    return call


KEYS: list[tuple[Any, Any]] = [
    ((), 1.0), (..., [1.0, 2.0, 3.0]), (-1, X[0]), (slice(None), X[:, :1]), ((1, 2), 5),
    (slice(3, 0, -2), [[1.0], [2.0]]), (slice(2, 2), 9.0), ((None, 1), [[7.0]]),
    ((slice(None, None, 2), slice(None, None, -1)), X[:2]), ((..., 1), X[:, 0]),
    ([0, 0, 2], [[1.0], [2.0], [3.0]]), ([], 3.0), (np.array([[0, 1], [1, 3]]), np.ones((2, 2, 3))),
    (([0, 0], [1, 1]), [4.0, 5.0]), ((slice(None), [2, 0]), X[:, :2]),
    (X[:, 0] > 0, 2.0), (X > 0, 2.0), (X > 0, np.arange((X > 0).sum())), ((2, X[0] > 0), 8.0),
    ((X[:, 0] > 0, 1), 3.0), ((X[:, 0] > 0, [0]), 3.0), ((slice(None), [True, False, True]), X[:, :2]),
    ((0, None, [1, 2]), [[3.0], [4.0]]), (([0, 1], None, [1, 2]), [[3.0], [4.0]]),
    (0, np.ones((1, 1, 3))), (np.int64(2), True), ([True, False, False, True], X[:2]),
]  # fmt: skip


@pytest.mark.parametrize("i", range(len(KEYS)))
def test_entries_are_written_as_numpy_writes_them(i: int) -> None:
    key, v = KEYS[i]
    check(_written(key, v), X)


def test_entries_of_a_cube_are_written_as_numpy_writes_them() -> None:
    cube, mask = real(2, 3, 4), np.array([True, False, True])
    for key, v in [
        (([0, 1], slice(1), 0), 0.0),
        ((0, slice(None), [1, 2]), real(2, 3)),
        ((slice(None), mask), real(2, 1, 4)),
        ((slice(None), mask, 1), real(2, 2)),
        ((mask[:2], slice(None), [3, 1]), real(1, 3)),
        ((..., np.array([[0], [3]])), real(3, 2, 1)),
        (([1], [[0], [2]], slice(None, None, -2)), real(2, 1, 2)),
        ((cube[:, :, 0] > 0, 1), 5.0),
        ((cube[:, :, 0] > 0,), real(4)),
    ]:
        check(_written(key, v), cube)


def test_places_that_are_known_at_run_time_are_written_last_one_last() -> None:
    ids, many = np.array([2, 0, 2]), np.array([3, -1, 0, 3, 3, 1] * 5)

    def call(x: Any, y: Any, ids: Any, many: Any) -> Any:
        a, b, c, d, e, g = (x.copy() for _ in range(6))
        a[ids] = y[:3]
        b[ids, 1] = y[1]
        c[np.arange(4), many[:4] % 3] = y[:, 0]
        d[many] = np.arange(30.0)[:, None] * y[0, 0]
        e[ids[0], ids[1]] = 5.0
        g[ids] += 1.0  # once
        h = x.T.copy()
        h[:, ids] = y[:3].T
        return a, b, c, d, e, g, h

    check(call, X, Y, ids, many)


def test_an_index_outside_is_an_error_when_the_step_runs() -> None:
    for key in (lambda i: i, lambda i: i[0], lambda i: (np.arange(3), i)):

        def step(params: Any, batch: Any, key: Any = key) -> Any:
            x = np.zeros_like(batch["x"])
            x[key(batch["i"])] = 1.0
            return {"x": x}

        given = {"x": np.zeros((3, 2)), "i": np.array([7, 0, 1])}
        made = record(step, {}, given, whole=["*"])
        with pytest.raises(GraphcError, match="index 7 is out of range"):
            evaluate(made.graph, made.inputs(given))


def test_what_is_written_is_cast_as_numpy_casts_it() -> None:
    def call(i: Any, x: Any, b: Any) -> Any:
        i[0], b[1], x[2] = x[0], x[1], i[3]
        i[1:3] = 2.9
        b[:2] |= True
        return i, x, b

    given = np.arange(4, dtype=np.int32), np.array([-2.7, 0.0, 3.5]), np.array([True] * 3)
    wanted = call(*(x.copy() for x in given))
    for found, x in zip(traced(call, *given), wanted, strict=True):
        assert found.dtype == x.dtype and np.array_equal(found, x)
    for wrong in (float("nan"), 2**40):
        with pytest.raises(GraphcError, match="can't be written into an array of i32"):
            traced(_written(0, wrong), given[0])


def test_views_see_writes_and_writes_to_views_are_seen() -> None:
    def call(x: Any) -> Any:
        x = x.copy()
        row, column, turned = x[1], x[:, 1:2], x.T
        flat, (upper, lower), back = x.reshape(-1), np.split(x, 2), x[::-1]
        x[1] = 1.0
        turned[0] *= 2.0
        flat[-1] = 7.0
        upper[:, 0] = lower[:, 2]
        back[0] += column[0]
        np.flip(x)[0, 0] = -3.0
        x.T[2][1:3] = 0.5
        x[None, ..., None][0, 3, 1] = 9.0
        kept = x.copy()
        x.fill(4.0)
        return x, row, column, turned, flat, upper, lower, back, kept

    check(call, X)


def test_numpy_numbers_are_not_changed_in_place() -> None:
    def call(x: Any) -> Any:
        total = before = x.sum()
        total += x[0]  # another array
        entry = x[0, 0]
        entry -= 1.0
        array = other = np.zeros_like(x[0, 0])
        array += 1.0
        return total, before, entry, x, array, other

    check(call, X)


def test_constant_arrays_that_are_written_into_are_traced() -> None:
    def rotation(angle: Any) -> Any:
        matrix = np.eye(3)
        matrix[0, 0] = matrix[1, 1] = np.cos(angle)
        matrix[1, 0] = np.sin(angle)
        matrix[0, 1] = -matrix[1, 0]
        return matrix

    def call(x: Any) -> Any:
        out, some, counts = np.zeros((2, 3)), {"a": [np.empty(3)]}, np.zeros(2, int)
        counts[0] = 1
        for i in range(2):
            out[i] = x[i] * 2.0
        some["a"][0][:] = x[counts[0]]
        np.put(part := np.array([1.0, 2.0, 3.0]), [0, 2], x[0, 0])
        np.add(x[0], 1.0, out=(total := np.ones(3)))
        return out, some["a"][0], part, total, rotation(x[0, 0]) @ rotation(x[0, 1]), counts[0]

    check(call, X)


def test_entries_that_a_mask_chooses_are_changed_written_and_summed() -> None:
    def call(x: Any, y: Any) -> Any:
        a, b, c, mask = x.copy(), np.zeros_like(x), x.copy(), y > 0.2
        a[a < 0] *= -2.0
        b[mask] = np.log(y[mask]) + 1.0
        b[~mask] = np.clip(-x[~mask], 0, 1)
        first = y[:, 0] > 0
        c[first] += y[0]
        part = same = x[mask]
        part -= 1.0
        c[mask] = same
        return a, b, c, x[mask].sum(), np.mean(y[mask] ** 2), (x[mask] > 0).any()

    check(call, X, Y)


def test_what_a_mask_leaves_out_has_no_influence_on_gradients() -> None:
    def step(params: Any, batch: Any) -> Any:
        def loss(x: Any) -> Any:
            y = np.zeros_like(x)
            y[x > 0] = np.sqrt(x[x > 0])
            return np.sum(y)

        return {"g": graphc.grad(loss)(batch["x"])}

    x = np.array([4.0, -1.0, 0.0, 1.0])
    made = record(step, {}, {"x": x}, data_dtype="float64")
    found = evaluate(made.graph, made.inputs({"x": x}))[made.graph.outputs["g"]]
    assert np.array_equal(found, [0.25, 0.0, 0.0, 0.5])


def test_the_array_that_the_caller_gave_keeps_its_entries() -> None:
    def step(params: Any, batch: Any) -> Any:
        batch["x"][0] = 9.0
        params["w"][:] = 0.0
        return np.sum(batch["x"]) + np.sum(params["w"])

    x, w = np.ones((4, 2), np.float32), np.ones(3, np.float32)
    with pytest.warns(UserWarning, match="'w' is changed in this step only"):
        trainer = graphc.compile(step, {"w": w}, {"x": x})
    with trainer:
        assert float(trainer.evaluate([{"x": x}])["loss"]) == 24.0
        assert np.array_equal(trainer.params["w"], w) and np.array_equal(x, np.ones((4, 2)))


# -- any batch, any strategy ----------------------------------------------------------------------


def _into(x: Any, key: Any, v: Any) -> Any:
    x[key] = v
    return x


def _added(x: Any, key: Any, v: Any) -> Any:
    x[key] += v
    return x


def _by(write: Callable[..., Any]) -> Form:
    def call(x: Any, y: Any) -> Any:
        z = x.copy()
        write(z, y)
        return z

    return call


FORMS: dict[str, Form] = {
    "x[0]": lambda x, y: _into(x.copy(), 0, 7.0),
    "x[-1]": lambda x, y: _into(x.copy(), -1, x[0]),
    "x[1:]": lambda x, y: _into(x.copy(), slice(1, None), 0.0),
    "x[:-1]": lambda x, y: _into(x.copy(), slice(None, -1), 0.0),
    "x[-2:]": lambda x, y: _into(x.copy(), slice(-2, None), 0.0),
    "x[::2]": lambda x, y: _into(x.copy(), slice(None, None, 2), 0.0),
    "x[::-2]": lambda x, y: _into(x.copy(), slice(None, None, -2), 0.0),
    "x[1:3]": lambda x, y: _into(x.copy(), slice(1, 3), y[0]),
    "x[-3]": lambda x, y: _into(x.copy(), -3, 1.0),
    "x[::-1] = y": lambda x, y: _into(x.copy(), slice(None, None, -1), y),
    "x[1:] = y[:-1]": lambda x, y: _into(x.copy(), slice(1, None), y[:-1]),
    "x[mask]": lambda x, y: _into(x.copy(), x > y, 0.0),
    "x[rows]": lambda x, y: _into(x.copy(), x[:, 0] > 0, y[0]),
    "x[:, 0]": lambda x, y: _into(x.copy(), (slice(None), 0), y[:, 1]),
    "x[arange, ids]": lambda x, y: _into(x.copy(), (np.arange(len(x)), np.argmax(y, 1)), y[:, 0]),
    "x[argmax]": lambda x, y: _into(x.copy(), np.argmax(y[:, 0]), 7.0),
    "x[[0, 2]]": lambda x, y: _into(x.copy(), [0, 2], 7.0),
    "x[n // 2 :]": lambda x, y: _into(x.copy(), slice(len(x) // 2, None), 7.0),
    "x[n - 1]": lambda x, y: _into(x.copy(), len(x) - 1, 7.0),
    "zeros": lambda x, y: _into(np.zeros((len(x), 3)), (slice(None), 1), y[:, 0]),
    "zeros_like": lambda x, y: _into(np.zeros_like(x, shape=(4, 3)), slice(None, 4), y[:, :3]),
    "zeros of 4": lambda x, y: _into(np.zeros_like(x, shape=(4,)), ..., y[:, 0]),
    "zeros[arange]": lambda x, y: _into(np.zeros_like(x, shape=(4,)), np.arange(4), y[:, 0]),
    "table[ids]": lambda x, y: _into(np.zeros_like(x, shape=(5,)), np.argmax(y, 1), 7.0),
    "table[ids] = y": lambda x, y: _into(np.zeros_like(x, shape=(5,)), np.argmax(y, 1), y[:, 0]),
    "fill_diagonal": lambda x, y: _by(lambda z, y: np.fill_diagonal(z, 3.0))(x @ y.T, y),
    "put": _by(lambda z, y: np.put(z, [0, 2], y[0, 0])),
    "putmask": _by(lambda z, y: np.putmask(z, z > 0, y)),
    "putmask, repeated": _by(lambda z, y: np.putmask(z, z > 0, y[0, :2])),
    "place": _by(lambda z, y: np.place(z, z > 0, y[0, :2])),
    "copyto": _by(lambda z, y: np.copyto(z, y, where=z > 0)),
    "put_along_axis": _by(lambda z, y: np.put_along_axis(z, np.argsort(y, 1)[:, :2], y[:, :2], 1)),
    "put_along_axis 0": _by(lambda z, y: np.put_along_axis(z, np.argsort(y, 0)[:2], 5.0, 0)),
    "sort": _by(lambda z, y: z.sort(1)),
    "a view": _by(lambda z, y: _into(z[1:], ..., 3.0)),
    "a transposed view": _by(lambda z, y: _into(z.T, 0, y[:, 1])),
    "a flat view": _by(lambda z, y: _into(z.reshape(-1), 0, 3.0)),
    "x[1:, 0] += y": lambda x, y: _added(x.copy(), (slice(1, None), 0), y[1:, 0]),
    "x[:, 0] += y": lambda x, y: _added(x.copy(), (slice(None), 0), y[:, 1]),
    "x[mask] += y": lambda x, y: _added(x.copy(), x[:, 0] > 0, y[0]),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", FORMS)
def test_writes_hold_for_a_batch_of_any_size_or_say_that_they_do_not(name: str) -> None:
    rng = np.random.default_rng(0)
    good = (law.ANY_SIZE, law.ONE_SIZE, law.REFUSED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for width in (4, 3):
            x, y = rng.normal(size=(4, width)), rng.normal(size=(4, width))
            for sample in law.samples(name, FORMS[name], (x, y)):
                assert law.verdict(sample) in good, (sample.dims, law.verdict(sample))


def _step(params: Any, batch: Any) -> Any:
    x, ids = batch["x"].copy(), batch["i"]
    x[x < -1] = 0.5
    x[:, 1] *= 2
    x[0] = 1
    h = x @ params["w"]
    h[np.arange(len(h)), ids] = -h[:, 0]
    h[:, 1:3] += h[:, :2]
    turned = h.T
    turned[5] = np.sin(turned[4])
    h[-1] *= 0.5
    h[h > 1] -= 0.1 * h[h > 1]
    table = params["t"].copy()
    table[2] = table[1] * 3
    table[[0, 0, 4]] = table[3:6]
    out, head = np.zeros((len(x), 3)), np.zeros((3, 3))
    out[:, 0], out[:, 1:] = h[:, 0], (h @ table)[:, 1:]
    head[:2] = table[:2]
    np.putmask(out, out > 2, 2.0)
    return np.mean(np.square(out @ head))


STRATEGIES = (
    "mirrored(2) * accumulate(2)", 'tensor_split(2, {"w": 1})', 'tensor_split(2, {"t": 0})',
    "mirrored(3)", "accumulate(2)", "zero(2)", "reproducible * mirrored(2)",
)  # fmt: skip


@pytest.mark.parametrize("strategy", dealt(STRATEGIES, 2, 5))
def test_writes_are_the_same_under_every_strategy_for_short_batches_too(strategy: str) -> None:
    rng = np.random.default_rng(0)
    params = {"w": rng.normal(size=(4, 6)), "t": rng.normal(size=(6, 3))}
    params = {name: x.astype(np.float32) for name, x in params.items()}
    batch = {"x": rng.normal(size=(8, 4)).astype(np.float32), "i": np.arange(8, dtype=np.int32) % 6}
    losses: list[list[float]] = []
    for options in ({}, {"strategy": strategy}):
        sgd = graphc.optim.sgd(0.001)
        with graphc.compile(_step, params, batch, optimizer=sgd, **options) as trainer:
            parts = [{k: x[:n] for k, x in batch.items()} for n in (8, 5, 8)]
            losses.append([float(trainer.step(part)["loss"]) for part in parts])
    np.testing.assert_allclose(losses[0][0], _step(params, batch), rtol=1e-5)
    np.testing.assert_allclose(*losses, rtol=1e-5)


@pytest.mark.parametrize("p", [1.0, 2.0])
@pytest.mark.parametrize("form", [np.sqrt, np.log], ids=["sqrt", "log"])
def test_entries_that_a_mask_does_not_choose_reach_no_gradient(form: Any, p: float) -> None:
    """Neither that of the array nor that of a number beside it, where they would make it NaN."""
    x = np.array([1.0, 3.0, 5.0, 0.5])

    def loss(params: Any, batch: Any) -> Any:
        x, p = batch["x"], params["p"]
        y, mask = np.zeros_like(x), x > p
        y[mask] = form(x[mask] - p)
        return np.sum(y)

    how = graphc.optim.sgd(1.0)
    with graphc.compile(loss, {"p": np.float64(p)}, {"x": x}, optimizer=how) as trainer:
        trainer.step({"x": x})
        found = p - float(trainer.variables("param")["p"])

    above, step = x[x > p], 1e-6
    ends = [float(np.sum(form(above - p - h))) for h in (step, -step)]
    np.testing.assert_allclose(found, (ends[0] - ends[1]) / (2 * step), rtol=1e-6)


def test_entries_stay_those_that_the_mask_chose_when_it_is_written_later() -> None:
    def chosen(x: Any) -> Any:
        mask = x > 2
        y = x[mask]
        mask[0], mask[5] = True, False
        return np.sum(y) * 10 + np.sum(x[mask])

    x = np.arange(6.0)
    graph = record(lambda p, b: {"y": chosen(b["x"])}, {}, {"x": x}).graph
    found = evaluate(graph, {"x": x})
    assert found[graph.outputs["y"]] == chosen(x) == 127
