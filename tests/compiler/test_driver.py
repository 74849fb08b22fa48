"""From a module to a plan: what a strategy may ask of a step, and what limits hold."""

from __future__ import annotations

import pytest

from graphc.compiler.driver import compile_module
from graphc.frontend.language.load import module_of_source
from graphc.frontend.module import Module
from graphc.plan.plan import Plan
from graphc.strategies import parse_strategy
from graphc.support.errors import GraphcError, GraphcWarning

STEP = """
    step two(x: f32[batch, 32], y: f32[batch, 16]) {
        param w1: f32[32, 64] = he_normal()
        param w2: f32[64, 16] = he_normal()
        minimize mse(relu(x @ w1) @ w2, y) with sgd(0.1)
    }
"""
CUT = 'tensor_split(4, {"w1": 1, "w2": 0})'


def module(text: str = STEP, batch: int = 8) -> Module:
    return module_of_source(text, sizes={"batch": batch})


def plan(strategy: str, text: str = STEP) -> Plan:
    return compile_module(module(text), parse_strategy(strategy))


# -- the batch -------------------------------------------------------------------------------------


def test_a_strategy_that_cuts_no_batch_is_warned_of() -> None:
    fixed = STEP.replace("batch", "8")
    with pytest.warns(
        GraphcWarning, match=r"mirrored\(2\) splits the batch, but no input has a batch dim"
    ):
        plan("mirrored(2)", text=fixed)


def test_a_step_of_fixed_size_runs_on_one_device_without_a_warning() -> None:
    assert plan("one_device()", text=STEP.replace("batch", "8")).mesh.devices == 1


# -- names in a strategy ---------------------------------------------------------------------------


def test_a_cut_of_a_variable_that_is_not_there_is_an_error() -> None:
    with pytest.raises(GraphcError, match=r"'w3' in .* matches no variable") as caught:
        plan('tensor_split(2, {"w1": 1, "w3": 0})')
    assert caught.value.code == "G0404"
    assert caught.value.help == "it has: w1, w2"


def test_a_glob_cuts_every_variable_that_it_matches() -> None:
    cut = plan('tensor_split(2, {"w*": 0})').programs["train"]
    assert {n: str(t.placement) for n, t in cut.variable_types.items() if n != "step"} == {
        "w1": "{model:S(0)}",
        "w2": "{model:S(0)}",
    }


def test_a_plan_without_cuts_prints_a_strategy_that_compiles_again() -> None:
    tiny = """
        step one(x: f32[batch], y: f32[batch]) {
            param w: f32 = 0.5
            minimize mse(x * w, y) with sgd(0.1)
        }
    """
    found = plan("tensor_split(2)", text=tiny).strategy
    assert plan(found, text=tiny).strategy == found


# -- memory ----------------------------------------------------------------------------------------


def test_a_device_of_four_that_share_the_variables_holds_a_quarter() -> None:
    variables = 4 * (32 * 64 + 64 * 16) + 8
    cut = plan(CUT).programs["train"]
    assert cut.variable_bytes <= variables / 4 * 1.1


def test_a_program_states_what_it_sends() -> None:
    assert plan(CUT).programs["train"].sent_bytes == round(2 * 3 / 4 * 4 * 8 * 16)
    assert plan("one_device()").programs["train"].sent_bytes == 0


# -- warnings --------------------------------------------------------------------------------------


def test_a_warning_that_is_an_error_is_no_defect_of_graphc() -> None:
    """As under `python -W error`, and in these tests."""
    text = STEP.replace("mse(relu(x @ w1) @ w2, y)", "mean(x @ w1)")
    with pytest.raises(GraphcWarning, match="does not reach the loss"):
        plan("one_device()", text=text)
