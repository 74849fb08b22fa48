"""Orders and reductions as the user says them: in .gc, in Python, on the command line."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import graphc
from graphc.cli import group
from graphc.compiler.driver import compile_module
from graphc.frontend.language.load import module_of_source
from graphc.frontend.module import Module
from graphc.ir.orders import Order, parse_orders
from graphc.ops.collective import Conversion
from graphc.runtime.trainer import Trainer
from graphc.strategies import parse_strategy
from graphc.support.errors import GraphcError, GraphcWarning

# -- in words -------------------------------------------------------------------------------------

SOURCE = """
data train = npz("none.npz", batch=8)
step s(x: f32[batch, 3]) {{
    param w: f32[3] = ones() {options}
    minimize mean(square(x @ w)) with sgd(0.1) {settings}
}}
"""


def module(settings: str = "", options: str = "") -> Module:
    return module_of_source(SOURCE.format(settings=settings, options=options))


@pytest.mark.parametrize(
    ("settings", "options", "expected"),
    [
        ("order tree", "", "tree"),
        ('order "devices=tree, turns=add_n"', "", "turns=add_n+devices=tree"),
        ("over {w} order accumulate reduction mean", "", "accumulate"),
    ],
)
def test_a_step_says_its_order_in_words(settings: str, options: str, expected: str) -> None:
    assert module(settings, options).train.objectives[0].order == parse_orders(expected)


def test_a_param_says_its_order() -> None:
    assert module(options='{ decay=false, order="tree" }').train.variables[
        "w"
    ].order == parse_orders("tree")


def test_the_command_line_comes_before_the_file() -> None:
    asked = module('order "fanin=add_n,devices=tree"').ordered("devices=accumulate")
    assert asked.train.objectives[0].order == parse_orders("fanin=add_n+devices=accumulate")


@pytest.mark.parametrize(
    ("settings", "code", "words"),
    [
        ("order three", "G0308", "no order 'three'"),
        ('order "device=tree"', "G0308", "did you mean 'devices'"),
        ('order "turns=tree,turns=add_n"', "G0308", "gives turns twice"),
        ("reduction avg", "G0309", "no reduction 'avg'"),
        ("order tree order tree", "G0113", "given twice"),
    ],
)
def test_a_wrong_word_is_an_error_at_its_place(settings: str, code: str, words: str) -> None:
    with pytest.raises(GraphcError) as caught:
        module(settings)
    assert caught.value.code == code and caught.value.span is not None
    assert words in caught.value.render() and caught.value.span.line == 5


def test_orders_from_words_train_alike() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = []
        for order in ("", *map(str, Order)):
            plan = compile_module(
                module().ordered(order), parse_strategy("mirrored(2) * accumulate(2)")
            )
            with Trainer(plan) as trainer:
                for seed in range(3):
                    x = np.random.default_rng(seed).standard_normal((8, 3), np.float32)
                    trainer.step({"x": x})
                found.append(trainer.variables()["w"])
    for w in found[1:]:
        np.testing.assert_allclose(w, found[0], rtol=1e-5)


# -- the mean over a variable's uses ----------------------------------------------------------------


@pytest.mark.parametrize("order", [*map(str, Order)])
def test_the_mean_over_uses_is_asked_for_warned_of_and_no_gradient(order: str) -> None:
    def moved(settings: str) -> np.ndarray:
        text = """
step s(x: f32[batch, 3]) {
    param w: f32[3] = ones()
    minimize mean(x @ w) + mean(x @ w * 2.0) + sum(w) with sgd(1.0) SETTINGS
}
"""
        made = module_of_source(text.replace("SETTINGS", settings), sizes={"batch": 4})
        with Trainer(compile_module(made, parse_strategy("mirrored(2)"))) as trainer:
            trainer.step({"x": np.ones((4, 3), np.float32)})
            return 1.0 - trainer.variables()["w"]

    np.testing.assert_allclose(moved(f"order {order}"), 4.0)
    with pytest.warns(GraphcWarning, match=r"G0311(.|\n)*<source>:4:"):
        found = moved(f"order {order} reduction fanin_mean")
    np.testing.assert_allclose(found, 4.0 / 3)


# -- from Python, and from the command line ---------------------------------------------------------


def test_python_says_orders_and_reductions() -> None:
    def loss(params: dict[str, np.ndarray], batch: np.ndarray) -> np.ndarray:
        return np.mean((batch @ params["w"]) ** 2)

    w = graphc.param(np.ones(3, np.float32), order="devices=accumulate")
    how = {"optimizer": graphc.optim.sgd(0.1), "strategy": "mirrored(2) * accumulate(2)"}
    x = np.ones((8, 3), np.float32)
    with graphc.compile(loss, {"w": w}, x, order="tree", reduction="mean", **how) as step:
        sums = {(n.op.name, n.op.order) for n in step.graph() if isinstance(n.op, Conversion)}
        assert {("accumulate", Order.TREE), ("all_reduce", Order.ACCUMULATE)} <= sums
        assert "tree_reduce" not in {name for name, _ in sums}
    with pytest.raises(GraphcError, match="is a mean over the batch"):
        graphc.compile(loss, {"w": w}, x, reduction="sum", **how)
    with pytest.raises(GraphcError, match="no order 'trees'"):
        graphc.compile(loss, {"w": w}, x, order="trees", **how)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("tree", "tree_reduce"),
        ("devices=accumulate", '{axis="data", order="accumulate"}'),
        ("turns=tree", '{axis="data"}'),
    ],
)
def test_the_command_line_says_orders(order: str, expected: str) -> None:
    file = str(Path(__file__).parents[2] / "examples" / "linear.gc")
    given = ["show", file, "--strategy", "mirrored(2) * accumulate(2)", "--order", order]
    made = CliRunner().invoke(group, given)
    assert made.exit_code == 0 and expected in made.output


def test_a_wrong_order_on_the_command_line_is_told() -> None:
    file = str(Path(__file__).parents[2] / "examples" / "linear.gc")
    made = CliRunner().invoke(group, ["show", file, "--order", "device=tree"])
    assert isinstance(made.exception, GraphcError) and "devices" in made.exception.render()


# -- with what fixes the order itself ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "strategy", "words"),
    [
        (
            "order accumulate",
            "mirrored(2) * reproducible(slots=4)",
            "turns=accumulate is not possible",
        ),
        ('order "devices=add_n"', "mirrored(2) * reproducible(slots=4)", "devices=add_n"),
        ("", 'mirrored(2, reduce="accumulate") * reproducible(slots=4)', "devices=accumulate"),
    ],
)
def test_a_reproducible_run_has_an_order_of_its_own(
    settings: str, strategy: str, words: str
) -> None:
    with pytest.raises(GraphcError, match=words) as caught:
        compile_module(module(settings), parse_strategy(strategy))
    assert caught.value.code == "G0490"


@pytest.mark.parametrize("settings", ["order tree", 'order "fanin=accumulate"', ""])
def test_what_does_not_contradict_it_may_be_said(settings: str) -> None:
    compile_module(module(settings), parse_strategy("mirrored(2) * reproducible(slots=4)"))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("order", [*map(str, Order)])
@pytest.mark.parametrize(
    "strategy",
    ["zero(2, stage=1)", "zero(2, stage=3) * accumulate(2)", "central_storage(2)",
     "parameter_server(2, 2)", 'mirrored(2) * tensor_split(2, {"w": 0})'],
)  # fmt: skip
def test_every_strategy_takes_every_order(order: str, strategy: str) -> None:
    def trained(order: str, strategy: str) -> np.ndarray:
        plan = compile_module(module().ordered(order), parse_strategy(strategy))
        with Trainer(plan) as trainer:
            x = np.random.default_rng(0).standard_normal((8, 3), np.float32)
            trainer.step({"x": x})
            return trainer.variables()["w"]

    np.testing.assert_allclose(trained(order, strategy), trained("", "one_device()"), rtol=1e-5)
