"""The engine: variables, failures, interrupts, and programs that share one session."""

import signal
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from graphc_numpy import NumpyBackend

from graphc.compiler.pipeline import differentiation, distribution, partitioning, run_passes
from graphc.ir.builder import Builder
from graphc.ir.graph import Graph
from graphc.ir.op import Op
from graphc.ir.placement import Axis, Mesh, Split
from graphc.ir.types import F64, I32
from graphc.lowering.program.program import Program
from graphc.lowering.schedule.schedule import schedule
from graphc.ops.binary import Sub
from graphc.ops.unary import Tanh
from graphc.runtime.backends.executor import KernelBackend
from graphc.runtime.backends.plugins import backend
from graphc.runtime.backends.reference import BACKEND as REFERENCE
from graphc.runtime.backends.reference import interpret
from graphc.runtime.machine.blas import blas_threads
from graphc.runtime.synchronous.engine import Engine, run_once
from graphc.runtime.synchronous.fast_paths import FastPaths
from graphc.strategies import parse_strategy
from graphc.support.errors import GraphcError
from graphc.testing.models import classifier, classifier_data, entry, first_values, param
from graphc.testing.placed_graphs import PlacedGraph

BACKENDS = [REFERENCE, backend("numpy")]


def programs(graph: Graph, strategy: str) -> dict[str, Program]:
    how = parse_strategy(strategy)
    placed = run_passes(graph, distribution(how))
    full, short = (run_passes(placed, partitioning(how, short)) for short in (False, True))
    return {"train": schedule(full, exact=True), "train.short": schedule(short)}


def counter() -> Program:
    """`w = w - 1`, and `tanh` of the batch."""
    f = Builder("counter")
    x, w = entry(f, "x", (4,)), param(f, "w", (3,))
    f.outputs["y"] = f.tanh(x).name
    f.updates["w"] = (w - 1.0).name
    return schedule(f.build(), exact=True)


BATCH = {"x": np.zeros(4)}


# -- variables -----------------------------------------------------------------------------------


@pytest.mark.parametrize("devices", [1, 2, 3, 4])
def test_variables_come_back_as_they_were_loaded(devices: int) -> None:
    g = PlacedGraph(Mesh((Axis("data", devices), Axis("model", 2))))
    g.variable("whole", (3, 2))
    g.variable("rows", (7, 2), data=Split(0))
    g.variable("both", (5, 7), data=Split(1), model=Split(0))
    g.variable("one_dim", (9,), data=Split(0), model=Split(0))
    g.variable("scalar", ())
    program = schedule(g.build())
    rng = np.random.default_rng(0)
    values = {k: rng.normal(size=t.shape) for k, t in program.variable_types.items()}
    for chosen in BACKENDS:
        with Engine({"p": program}, chosen) as engine:
            engine.load_variables(values)
            found = engine.variables()
        for name, value in values.items():
            assert np.array_equal(found[name], value), name


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "no value for w"),
        ({"w": np.ones(3), "v": np.ones(3)}, "no variable v"),
        ({"w": np.ones(4)}, r"variable 'w' is f32\[3\], the value is float64\[4\]"),
        ({"w": np.ones(3, complex)}, r"variable 'w' is f32\[3\], the value is complex128"),
    ],
)
def test_values_that_do_not_fit_are_named(values: dict, message: str) -> None:
    with Engine({"p": counter()}, REFERENCE) as engine:
        with pytest.raises(GraphcError, match=message) as error:
            engine.load_variables(values)
        assert error.value.code == "G0510"


def test_some_variables_may_be_loaded_alone() -> None:
    graph = run_passes(classifier(), differentiation())
    with Engine({"p": schedule(graph)}, backend("numpy")) as engine:
        engine.load_variables(first_values(graph))
        engine.load_variables({"w1": np.zeros((6, 8))}, partly=True)
        assert not engine.variables()["w1"].any()
        assert engine.variables()["w2"].any()


# -- programs ------------------------------------------------------------------------------------


def test_programs_share_the_variables() -> None:
    train, evaluate = Builder("train"), Builder("evaluate")
    w = param(train, "w", (3,))
    train.updates["w"] = (w + 1.0).name
    w = param(evaluate, "w", (3,))
    evaluate.outputs["sum"] = evaluate.reduce_sum(w, over=(0,)).name
    pair = {"train": schedule(train.build()), "evaluate": schedule(evaluate.build())}
    for chosen in BACKENDS:
        with Engine(pair, chosen) as engine:
            engine.load_variables({"w": np.zeros(3)})
            engine.step({}, "train")
            assert engine.step({}, "evaluate")["sum"] == 3


def test_a_batch_that_is_not_full_runs_the_short_program() -> None:
    graph = run_passes(classifier(8, dtype=F64), differentiation())
    values = first_values(graph)
    with Engine(programs(graph, "mirrored(2)"), backend("numpy")) as engine:
        for n in (8, 5):
            engine.load_variables(values)
            found = engine.step(classifier_data(n), "train")["loss"]
            alone = run_passes(classifier(n, dtype=F64), differentiation())
            assert found == pytest.approx(interpret(alone, classifier_data(n), values)[0]["loss"])


def test_an_unknown_program_is_named() -> None:
    message = r"no program 'trian'[\s\S]*mean 'train'"
    with (
        Engine({"train": counter()}, REFERENCE) as engine,
        pytest.raises(GraphcError, match=message),
    ):
        engine.step(BATCH, "trian")


def test_programs_of_different_meshes_do_not_fit_together() -> None:
    other = schedule(PlacedGraph(Mesh((Axis("data", 2),))).build())
    with pytest.raises(GraphcError, match="'a' and 'b' differ in mesh or variables"):
        Engine({"a": counter(), "b": other}, REFERENCE)


def test_outputs_have_an_entry_per_example_that_came() -> None:
    f = Builder("each")
    f.outputs["y"] = f.neg(entry(f, "x", (8, 2))).name
    for chosen in BACKENDS:
        outputs, _ = run_once(schedule(f.build()), chosen, {"x": np.ones((5, 2))})
        assert outputs["y"].shape == (5, 2)


def test_outputs_are_the_callers_to_keep() -> None:
    for chosen in BACKENDS:
        with Engine({"p": counter()}, chosen) as engine:
            engine.load_variables({"w": np.zeros(3)})
            first = engine.step({"x": np.ones(4)})["y"]
            kept = first.copy()
            engine.step(BATCH)
            assert np.array_equal(first, kept)


def test_blas_threads_are_given_back() -> None:
    before = blas_threads()
    graph = PlacedGraph(Mesh((Axis("data", 4),))).build()
    with Engine({"p": schedule(graph)}, REFERENCE):
        assert before is None or blas_threads() == max(1, before // 4)
    assert blas_threads() == before


# -- failures ------------------------------------------------------------------------------------


def lookup(devices: int) -> Program:
    """`w = w - 1`, and a row of a table for each index of the batch."""
    g = PlacedGraph(Mesh((Axis("data", devices),)))
    ids = g.input("ids", (4,), I32, data=Split(0))
    table, w = g.variable("table", (5, 2)), g.variable("w", (3,))
    rows = g.f.add(_op("gather", dim=0), [table, ids], type=_rows(g))
    g.output("rows", g.convert(rows, _op("all_gather", axis="data", dim=0)))
    g.update("w", g.node(Sub(), [w, w]))
    return schedule(g.build())


def _op(name: str, **attributes: Any) -> Any:
    from graphc.ir.op import op_named

    return op_named(name)(**attributes)


def _rows(g: PlacedGraph) -> Any:
    from graphc.ir.placement import place
    from graphc.ir.types import TensorType

    return TensorType((4, 2), F64, (), place(g.mesh, {"data": Split(0)}.items()))


@pytest.mark.parametrize("devices", [1, 3])
@pytest.mark.parametrize("chosen", BACKENDS, ids=lambda b: b.name)
def test_a_failure_before_the_first_write_changes_nothing(devices: int, chosen: Any) -> None:
    values = {"table": np.ones((5, 2)), "w": np.ones(3)}
    with Engine({"p": lookup(devices)}, chosen, deadline=600) as engine:
        engine.load_variables(values)
        with pytest.raises(GraphcError, match="index 9 is out of range for a dim of 5"):
            engine.step({"ids": np.array([0, 1, 2, 9])})
        assert np.array_equal(engine.variables()["w"], np.ones(3))
        engine.step({"ids": np.arange(4)})
        assert not engine.variables()["w"].any()


class Failing:
    """The reference, whose kernel for one op fails or does something else when it is told to."""

    def __init__(self, op: type[Op], what: Any) -> None:
        self.op, self.what, self.on = op, what, False

    def __call__(self, op: Op, xs: Sequence[Any]) -> Any:
        if self.on and isinstance(op, self.op):
            self.on = False
            self.what()
        return op.run(*xs)


def burn() -> None:
    raise RuntimeError("the device is on fire")


def test_a_failure_of_an_update_changes_nothing_where_it_is_made_apart() -> None:
    kernel = Failing(Sub, burn)
    with Engine({"p": counter()}, KernelBackend("failing", kernel)) as engine:
        engine.load_variables({"w": np.ones(3)})
        kernel.on = True
        with pytest.raises(RuntimeError, match="on fire"):
            engine.step(BATCH)
        assert engine.valid
        assert np.array_equal(engine.variables()["w"], np.ones(3))
        engine.step(BATCH)
        assert not engine.variables()["w"].any()


def test_a_failure_while_writing_makes_the_engine_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    from graphc_numpy.calls.device import _BoundCalls

    def write(self: _BoundCalls) -> None:
        self.variables["w"][0] = 7
        burn()

    with Engine({"p": counter()}, NumpyBackend(native=False)) as engine:
        engine.load_variables({"w": np.ones(3)})
        with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="on fire"):
            patch.setattr(_BoundCalls, "commit", write)
            engine.step(BATCH)
        for call in (lambda: engine.step(BATCH), engine.variables):
            with pytest.raises(GraphcError, match=r"while it wrote the variables: .* on fire"):
                call()
        engine.load_variables({"w": np.ones(3)})
        engine.step(BATCH)
        assert not engine.variables()["w"].any()


def test_an_error_says_in_which_node_it_happened() -> None:
    kernel = Failing(Tanh, burn)
    with Engine({"p": counter()}, KernelBackend("failing", kernel)) as engine:
        engine.load_variables({"w": np.ones(3)})
        kernel.on = True
        with pytest.raises(RuntimeError) as error:
            engine.step(BATCH)
        assert "in %tanh = tanh" in error.value.__notes__
        engine.step(BATCH)


def test_ctrl_c_finishes_the_step() -> None:
    kernel = Failing(Tanh, lambda: signal.raise_signal(signal.SIGINT))
    with Engine({"p": counter()}, KernelBackend("interrupted", kernel)) as engine:
        engine.load_variables({"w": np.ones(3)})
        kernel.on = True
        with pytest.raises(KeyboardInterrupt):
            engine.step(BATCH)
        assert not engine.variables()["w"].any()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_ctrl_c_does_not_wait() -> None:
    def twice() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    kernel = Failing(Tanh, twice)
    with Engine({"p": counter()}, KernelBackend("interrupted", kernel)) as engine:
        engine.load_variables({"w": np.ones(3)})
        kernel.on = True
        with pytest.raises(KeyboardInterrupt):
            engine.step(BATCH)
        assert engine.variables()["w"].all()


@pytest.mark.parametrize("own_thread", [True, False])
def test_a_session_that_is_closed_during_a_step_ends_behind_it(own_thread: bool) -> None:
    """As a handler of a signal may close it, or another thread. The session opened again behind
    the step, without devices; of several, it waited for their threads, which had ended."""

    def close() -> None:
        if own_thread:
            engine.close()
        else:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(engine.close).result()

    kernel = Failing(Tanh, close)
    engine = Engine({"p": counter()}, KernelBackend("closing", kernel))
    engine.load_variables({"w": np.ones(3)})
    kernel.on = True
    np.testing.assert_array_equal(engine.step(BATCH)["y"], np.zeros(4))
    for use in (lambda: engine.step(BATCH), engine.variables):
        with pytest.raises(GraphcError, match="the session is closed"):
            use()


def test_two_threads_that_come_with_a_first_short_batch_use_one_fast_path() -> None:
    class Path:
        open, done = True, 0

        def step(self, batch: Any, variables: Any = None) -> dict[str, Any] | None:
            self.done += bool(batch)
            return batch or None

    def find(name: str) -> Path:
        time.sleep(0.02)
        return Path()

    full = Path()
    full.step = lambda batch, variables=None: None  # type: ignore[method-assign]
    paths = FastPaths(full, "p.short", ["p.short"], find)
    with ThreadPoolExecutor(4) as pool:
        made = [pool.submit(paths.step, {"loss": 1.0}) for _ in range(4)]
        assert [x.result() for x in made] == [{"loss": 1.0}] * 4
    assert paths.done == 4


def test_a_backend_that_can_not_run_says_why() -> None:
    absent = KernelBackend("gpu", lambda op, xs: None, unavailable=lambda: "there is no GPU")
    with pytest.raises(GraphcError, match="'gpu' can't run here: there is no GPU"):
        Engine({"p": counter()}, absent)


def test_a_result_of_a_wrong_type_is_named() -> None:
    half = KernelBackend("half", lambda op, xs: np.asarray(op.run(*xs)).astype(np.float16))
    with Engine({"p": counter()}, half) as engine:
        engine.load_variables({"w": np.ones(3)})
        message = r"backend 'half' computes \w+ as float16.*, but it must be f32"
        with pytest.raises(GraphcError, match=message):
            engine.step(BATCH)
