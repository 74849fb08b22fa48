"""graphc.custom_op: NumPy functions as ops of traced steps."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from graphc_numpy import NumpyBackend

import graphc
from graphc.cli import group
from graphc.ops import custom_op as registry
from graphc.plan.custom_ops import check_announced
from graphc.runtime.backends.reference import BACKEND as REFERENCE
from graphc.support.errors import GraphcError

# Without a dims rule an op needs the whole batch, and refuses short ones.
pytestmark = pytest.mark.filterwarnings("ignore:warning.G0832")

X = np.random.default_rng(0).standard_normal((8, 5))
SHORT = X[:5]
W = np.linspace(0.5, 1.5, 5)


def cube(x: Any) -> Any:
    assert not x.flags.writeable
    return np.sort(x, axis=1) ** 3


def middle(x: Any) -> Any:
    return np.median(x)


def gradient_of_cube(g: Any, x: Any) -> Any:
    rows = np.argsort(np.argsort(x, axis=1), axis=1)
    return np.take_along_axis(g * 3 * np.sort(x, axis=1) ** 2, rows, axis=1)


SORTED = graphc.custom_op(cube, type=lambda x: x, dims="b n! -> b n!", gradient=gradient_of_cube)
WHOLE = graphc.custom_op(cube, type=lambda x: x, gradient=gradient_of_cube, name="whole_cube")
MEDIAN = graphc.custom_op(middle, type=lambda x: ((), x.dtype))


def loss(p: Any, b: Any) -> Any:
    y = SORTED(b["x"] * p["w"])
    graphc.report("rows", y)
    return np.mean(y)


def whole_loss(p: Any, b: Any) -> Any:
    graphc.report("middle", MEDIAN(b["x"]))
    return np.mean(WHOLE(b["x"] * p["w"]))


def trained(step: Any, strategy: str, batches: Any, backend: Any = "numpy") -> Any:
    options: dict[str, Any] = {"optimizer": graphc.optim.sgd(0.1), "strategy": strategy}
    with graphc.compile(step, {"w": W}, {"x": X}, backend=backend, **options) as trainer:
        return [trainer.step({"x": x}) for x in batches], trainer.params["w"]


def slope(w: Any, x: Any) -> Any:
    """The slope of the mean of cubes, which sorting does not change."""
    return (3 * (x * w) ** 2 * x).sum(0) / x.size


# -- what it computes -----------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["one_device()", "mirrored(2) * accumulate(2)"])
def test_rows_are_split_as_the_dims_rule_says_short_batches_too(strategy: str) -> None:
    metrics, w = trained(loss, strategy, [X, SHORT])
    np.testing.assert_allclose(metrics[0]["rows"], np.sort(X * W, axis=1) ** 3)
    first = W - 0.1 * slope(W, X)
    np.testing.assert_allclose(w, first - 0.1 * slope(first, SHORT))


@pytest.mark.parametrize("strategy", ["one_device()", "mirrored(2)", "accumulate(2)"])
def test_without_a_dims_rule_it_gets_the_whole_batch(strategy: str) -> None:
    metrics, w = trained(whole_loss, strategy, [X])
    assert metrics[0]["middle"] == np.median(X)
    np.testing.assert_allclose(w, W - 0.1 * slope(W, X))


@pytest.mark.parametrize("backend", ["calls", "reference"])
def test_every_backend_runs_it(backend: str) -> None:
    chosen = REFERENCE if backend == "reference" else NumpyBackend(native=False)
    _, w = trained(loss, "one_device()", [X], chosen)
    np.testing.assert_allclose(w, W - 0.1 * slope(W, X))


def test_a_part_of_the_batch_where_all_of_it_is_needed() -> None:
    with (
        pytest.warns(graphc.GraphcWarning, match="a batch of fewer than 8 examples"),
        pytest.raises(GraphcError) as caught,
    ):
        trained(whole_loss, "mirrored(2)", [X, SHORT])
    assert caught.value.code == "G0613"


# -- several results ------------------------------------------------------------------------------

CALLS: list[int] = []


def singular(x: Any) -> Any:
    CALLS.append(len(x))
    return {"rows": np.sort(x, axis=1), "most": (x.max(axis=1), np.argmax(x, axis=1))}


def gradient_of_singular(g: Any, x: Any) -> Any:
    order = np.argsort(np.argsort(x, axis=1), axis=1)
    first = np.arange(x.shape[1]) == np.argmax(x, axis=1)[:, None]
    return np.take_along_axis(g["rows"], order, axis=1) + first * g["most"][0][:, None]


SEVERAL = graphc.custom_op(
    singular,
    type=lambda x: {"rows": x, "most": ((x.shape[:1], x.dtype), (x.shape[:1], np.int64))},
    dims="b n! -> b n!, b, b",
    gradient=gradient_of_singular,
)


def loss_of_several(p: Any, b: Any) -> Any:
    y = SEVERAL(b["x"] * p["w"])
    graphc.report("rows", y["rows"])
    graphc.report("which", y["most"][1])
    return np.mean(np.sum(y["rows"] * WEIGHTS, axis=1) + y["most"][0] ** 2)


WEIGHTS = np.arange(1.0, 6.0)


def slope_of_several(w: Any, x: Any) -> Any:
    y = x * w
    g = WEIGHTS[np.argsort(np.argsort(y, axis=1), axis=1)]
    first = np.arange(5) == np.argmax(y, axis=1)[:, None]
    return ((g + first * 2 * y.max(axis=1)[:, None]) * x).sum(0) / len(x)


@pytest.mark.parametrize(
    "strategy",
    ["mirrored(2) * accumulate(2)", *(pytest.param(s, marks=pytest.mark.ci) for s in (
        "one_device()", "mirrored(4)", "tensor_split(5)", "zero(2, stage=3)", "central_storage(2)",
        "mirrored(2) * reproducible(4)",
    ))],
)  # fmt: skip
def test_an_op_of_several_results_under_a_strategy_and_through_a_plan(
    strategy: str, tmp_path: Path
) -> None:
    how: dict[str, Any] = {"optimizer": graphc.optim.sgd(0.1), "strategy": strategy}
    with graphc.compile(loss_of_several, {"w": W}, {"x": X}, **how) as trainer:
        trainer.trainer.plan.save(tmp_path / "step.plan")
        first, after = trainer.step({"x": X}), trainer.params["w"]
        np.testing.assert_allclose(first["rows"], np.sort(X * W, axis=1))
        np.testing.assert_array_equal(first["which"], np.argmax(X * W, axis=1))
        np.testing.assert_allclose(after, W - 0.1 * slope_of_several(W, X))
        trainer.step({"x": SHORT})
        short = after - 0.1 * slope_of_several(after, SHORT)
        np.testing.assert_allclose(trainer.params["w"], short)
    with graphc.Trainer(graphc.load_plan(tmp_path / "step.plan"), values={"w": W}) as again:
        assert again.step({"x": X})["loss"] == first["loss"]


@pytest.mark.parametrize("backend", ["native", "calls", "reference"])
def test_a_function_of_several_results_is_called_once_a_step(backend: str) -> None:
    some: dict[str, Any] = {"native": "numpy", "calls": NumpyBackend(native=False)}
    how: dict[str, Any] = {"optimizer": graphc.optim.sgd(0.1)}
    with graphc.compile(
        loss_of_several, {"w": W}, {"x": X}, backend=some.get(backend, REFERENCE), **how
    ) as trainer:
        trainer.step({"x": X})
        CALLS.clear()
        for _ in range(3):
            trainer.step({"x": X})
        assert CALLS == [8, 8, 8]


def test_results_that_are_not_used_do_not_leave_an_old_call_to_be_found() -> None:
    both = graphc.custom_op(lambda x: (x + 1, x * 2), type=lambda x: (x, x), name="both")
    step = lambda p, b: np.sum(both(b["x"])[1]) + 0 * p["w"][0]  # noqa: E731
    metrics, _ = trained(step, "one_device()", [X, X + 1, X])
    sums = [float(2 * x.sum()) for x in (X, X + 1, X)]
    np.testing.assert_allclose([m["loss"] for m in metrics], sums)


# -- plans ----------------------------------------------------------------------------------------

MODULE = """
import numpy as np
import graphc

@graphc.custom_op(type=lambda x: x, dims="b n! -> b n!", gradient=lambda g, x: g)
def ordered(x):
    return np.sort(x, axis=1)
"""
COMPILE = """
import numpy as np
import graphc
from my_ops import ordered

def loss(p, b):
    return np.mean(ordered(b["x"] * p["w"]) ** 2)

batch = {"x": np.arange(20.0).reshape(4, 5)}
with graphc.compile(loss, {"w": np.ones(5)}, batch, optimizer=graphc.optim.sgd(0.1)) as trainer:
    trainer.trainer.plan.save("step.plan")
"""
RUN = """
import numpy as np
import graphc
%s
plan = graphc.load_plan("step.plan")
with graphc.Trainer(plan, values={"w": np.ones(5)}) as trainer:
    print(float(trainer.step({"x": np.arange(20.0).reshape(4, 5)})["loss"]))
"""


def python(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", text]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_a_plan_is_refused_where_its_function_is_not_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sgd = graphc.optim.sgd(0.1)
    with graphc.compile(loss, {"w": W}, {"x": X}, optimizer=sgd, backend="reference") as trainer:
        first = trainer.step({"x": X})["loss"]
        trainer.trainer.plan.save(tmp_path / "step.plan")
    plan = graphc.load_plan(tmp_path / "step.plan")
    with graphc.Trainer(plan, "reference", values={"w": W}) as again:
        assert again.step({"x": X})["loss"] == first
    path = f"{__name__}:cube"
    monkeypatch.delitem(registry._FUNCTIONS, path)
    plan = graphc.load_plan(tmp_path / "step.plan")  # it can be read without its functions
    with pytest.raises(GraphcError, match=f"'{path}' of a custom op is not registered") as caught:
        graphc.Trainer(plan, "reference", values={"w": W})
    assert caught.value.code == "G0513" and f"--import {__name__}" in str(caught.value.help)


def test_processes_of_their_own_need_an_announced_function(monkeypatch: pytest.MonkeyPatch) -> None:
    with graphc.compile(loss, {"w": W}, {"x": X}, optimizer=graphc.optim.sgd(0.1)) as trainer:
        plan = trainer.trainer.plan
    with pytest.raises(GraphcError, match="another process can't find the function") as caught:
        check_announced(plan)
    assert caught.value.code == "G0577"
    point = EntryPoint("ops", __name__, registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    check_announced(plan)


@pytest.mark.ci
def test_a_plan_names_the_function_and_runs_where_its_module_is_imported(tmp_path: Path) -> None:
    (tmp_path / "my_ops.py").write_text(MODULE, encoding="utf-8")
    assert python(tmp_path, COMPILE).returncode == 0
    assert '"my_ops:ordered"' in (tmp_path / "step.plan").read_text(encoding="utf-8")
    done = python(tmp_path, RUN % "import my_ops")
    assert float(done.stdout) == np.mean(np.arange(20.0) ** 2), done.stderr
    refused = python(tmp_path, RUN % "")  # my_ops could be imported, but nobody said so
    assert "G0513" in refused.stderr and "--import my_ops" in refused.stderr
    shown = python(
        tmp_path, RUN % "plan = graphc.load_plan('step.plan'); print(7); raise SystemExit"
    )
    assert shown.stdout == "7\n", "a plan can be read without its functions"


def test_a_module_that_an_installed_package_announces_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "announced_ops.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("ops", "announced_ops", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    found = registry.function_named("announced_ops:ordered")
    np.testing.assert_array_equal(found(np.array([[2, 1]])), [[1, 2]])
    with pytest.raises(GraphcError, match="'os:system' of a custom op is not registered"):
        registry.function_named("os:system")


@pytest.mark.ci
def test_the_command_line_imports_only_what_it_is_told(tmp_path: Path) -> None:
    (tmp_path / "my_ops.py").write_text(MODULE, encoding="utf-8")
    assert python(tmp_path, COMPILE).returncode == 0
    run = "from graphc.cli import main; import sys; sys.argv = ['graphc', 'run', 'step.plan'%s]; "
    without = python(tmp_path, run % "" + "sys.exit(main())")
    assert "G0513" in without.stderr and "Traceback" not in without.stderr
    with_it = python(tmp_path, run % ", '--import', 'my_ops'" + "sys.exit(main())")
    assert "G0513" not in with_it.stderr  # it ends at the data, of which this plan has none
    wrong = python(tmp_path, run % ", '--import', 'no_ops'" + "sys.exit(main())")
    assert "--import no_ops fails" in wrong.stderr and "Traceback" not in wrong.stderr


@pytest.mark.parametrize("command", ["run", "predict", "evaluate"])
def test_commands_that_run_plans_take_the_modules_to_import(command: str) -> None:
    result = CliRunner().invoke(group, [command, "step.plan", "--import", "no_such_module"])
    assert isinstance(result.exception, GraphcError)
    assert "--import no_such_module fails: ModuleNotFoundError" in result.exception.message


def test_functions_made_in_functions_do_not_replace_each_other() -> None:
    def made(k: int) -> Any:
        return graphc.custom_op(lambda x: x * k, type=lambda x: x, dims="b n -> b n")

    ops = [made(2), made(3)]
    step = lambda p, b: np.sum(np.stack([op(b["x"]) for op in ops])) + 0 * p["w"][0]  # noqa: E731
    metrics, _ = trained(step, "one_device()", [X])
    np.testing.assert_allclose(metrics[0]["loss"], 5 * X.sum())


# -- mistakes -------------------------------------------------------------------------------------


def wrong(op: Any, code: str) -> GraphcError:
    with pytest.raises(GraphcError) as caught:
        trained(lambda p, b: np.mean(op(b["x"] * p["w"])), "one_device()", [X])
    assert caught.value.code == code
    assert caught.value.span is not None and caught.value.span.file == __file__
    return caught.value


def test_an_op_without_a_gradient_is_not_silently_constant() -> None:
    error = wrong(graphc.custom_op(cube, type=lambda x: x, name="no_slope"), "G0319")
    assert "gradient=" in str(error.help)


def test_a_type_rule_that_fails_or_lies() -> None:
    error = wrong(graphc.custom_op(cube, type=lambda x, y: x, name="two"), "G0811")
    assert "the type rule of two fails" in error.message
    rule = {"gradient": lambda g, x: np.zeros_like(x), "type": lambda x: ((3,), x.dtype)}
    error = wrong(graphc.custom_op(cube, name="lies", **rule), "G0538")
    assert "shape (8, 5)" in error.message and "says (3,)" in error.message


def test_several_results_that_do_not_fit_their_rules() -> None:
    two = {"type": lambda x: (x, x), "gradient": lambda g, x: g[0]}
    error = wrong(graphc.custom_op(cube, dims="b n -> b n", name="a", **two), "G0811")
    assert "has 1 results, the type rule 2" in error.message and "for each" in str(error.help)

    def first(function: Any, name: str) -> Any:
        op = graphc.custom_op(function, name=name, **two)
        return lambda x: op(x)[0] + np.sum(op(x)[1])

    error = wrong(first(lambda x: {"a": x}, "b"), "G0538")
    assert "returned no result '0', which its type rule has" in error.message
    error = wrong(first(lambda x: (x, x[0]), "c"), "G0538")
    assert "shape (5,)" in error.message and "at 1" in error.message
    error = wrong(graphc.custom_op(cube, type=lambda x: (), name="d"), "G0811")
    assert "returns no type" in error.message


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ("b n", "is not a dims rule"),
        ("b n, c -> b n", "has 2 operands, the op 1"),
        ("b n -> b", "'n' is not in the result, so write n! for it"),
        ("(a b) n -> a n", "a dim is a letter"),
        ("b n? -> b n", "a dim is a letter"),
        ("b -> b", "does not fit the shape (8, 5)"),
        ("b b -> b b", "has two lengths, 8 and 5"),
    ],
)
def test_a_dims_rule_that_is_none(dims: str, message: str) -> None:
    error = wrong(graphc.custom_op(cube, type=lambda x: x, dims=dims, name="ruled"), "G0811")
    assert message in error.message


def test_an_error_in_the_function_is_the_users_own() -> None:
    def fails(x: Any) -> Any:
        raise ZeroDivisionError("of mine")

    op = graphc.custom_op(fails, type=lambda x: x, gradient=lambda g, x: g)
    for strategy in ("one_device()", "mirrored(2)"):
        with pytest.raises(ZeroDivisionError, match="of mine"):
            trained(lambda p, b: np.mean(op(b["x"] * p["w"])), strategy, [X])
    with pytest.raises(GraphcError, match="outside a traced function"):
        SORTED(X)
