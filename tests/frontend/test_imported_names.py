"""`from numpy import zeros`: imported names mean what the functions of the module mean."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.frontend.numpy.stand_ins import MAKERS
from graphc.support.errors import GraphcError

# What a user's file may begin with.
HEAD = """
from numpy import arange, array, asarray, copy, full, ones_like, take, zeros, zeros as new
from numpy.random import randn
"""
STEPS = {  # what the file computes, and the same where functions are looked up in `np`
    "array": "asarray([w[0], 2 * w[1]]).sum() + array([[w[2]]]).sum()",
    "take": "(take(TABLE, batch['i'], axis=0) * w).sum()",
    "rows": "(new((len(batch['i']), 3)) + arange(len(batch['i']))[:, None] * w).mean()",
    "kept": "asarray(w).sum() + copy(w).sum()",
}
WRITES = """
def step(params, batch):
    w = params["w"]
    out, more = zeros((3,)), full(2, 0.5)
    out[1:] = w[:2]
    more[0] = w[2]
    return (out * out).sum() + more.sum()
"""
TABLE = np.arange(12.0).reshape(4, 3)
PARAMS = {"w": np.array([1.0, 2.0, 3.0])}
BATCH = {"i": np.array([0, 1, 2, 3])}


@pytest.fixture
def users(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a file of the user's with some text behind the imports."""
    monkeypatch.syspath_prepend(str(tmp_path))
    made: list[str] = []

    def imported(text: str) -> ModuleType:
        name = f"users_{tmp_path.name.replace('-', '_')}_{len(made)}"
        (tmp_path / f"{name}.py").write_text(HEAD + text)
        made.append(name)
        module = __import__(name)
        vars(module)["TABLE"] = TABLE
        return module

    yield imported
    for name in made:
        sys.modules.pop(name, None)


def run(step: Any, batch: Any = BATCH) -> float:
    trainer = graphc.compile(step, PARAMS, BATCH, optimizer=graphc.optim.sgd(0.1))
    return float(trainer.step(batch)["loss"])


@pytest.mark.parametrize("name", STEPS)
def test_imported_names_are_traced(name: str, users: Callable[[str], ModuleType]) -> None:
    text = f"def step(params, batch):\n    w = params['w']\n    return {STEPS[name]}\n"
    module = users(text)
    before = dict(vars(module))
    short = {"i": BATCH["i"][:3]}
    for batch in (BATCH, short):
        assert run(module.step, batch) == pytest.approx(float(module.step(PARAMS, batch)))
    assert {k: v for k, v in vars(module).items() if before[k] is not v} == {}


def test_arrays_that_imported_functions_make_are_written_to(
    users: Callable[[str], ModuleType],
) -> None:
    module = users(WRITES)
    assert run(module.step) == pytest.approx(float(module.step(PARAMS, BATCH)))


def test_a_function_of_another_module_of_the_user_is_traced(
    users: Callable[[str], ModuleType],
) -> None:
    module = users("def rows(w):\n    return array([w[0], w[2]])\n")
    assert run(lambda params, batch: module.rows(params["w"]).sum()) == 4.0


def test_numbers_that_an_imported_function_draws_are_pointed_out(
    users: Callable[[str], ModuleType],
) -> None:
    module = users("def step(params, batch):\n    return (randn(3) * params['w']).sum()\n")
    with pytest.warns(graphc.GraphcWarning, match="randn draws once"):
        run(module.step)


def test_other_threads_get_numpys_results_meanwhile(users: Callable[[str], ModuleType]) -> None:
    module = users("")
    found: list[Any] = []

    def look() -> None:
        out = module.zeros((2, 3))
        out[0] = 1
        found.extend([type(out), module.take(out, 0), type(module.asarray([1.0]))])

    def step(params: Any, batch: Any) -> Any:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        return module.asarray(params["w"]).sum()

    run(step)
    assert found[0] is np.ndarray and found[1] == 1.0 and found[2] is np.ndarray


def test_names_are_numpys_again_after_an_error(users: Callable[[str], ModuleType]) -> None:
    module = users("def step(params, batch):\n    return float(params['w'][0])\n")
    with pytest.raises(GraphcError):
        run(module.step)
    assert module.zeros is np.zeros and module.randn is np.random.randn


def test_a_name_that_the_step_binds_stays(users: Callable[[str], ModuleType]) -> None:
    text = "def step(params, batch):\n    global zeros\n    zeros = abs\n    return params['w'].sum()\n"
    module = users(text)
    run(module.step)
    assert module.zeros is abs


def test_names_of_one_function_are_replaced_alike() -> None:
    """Imported names are found by the identity of what they name."""
    makers: dict[int, Any] = {}
    for name, make in MAKERS["numpy"].items():
        assert makers.setdefault(id(getattr(np, name)), make) is make, name
