"""Groups of params, decay masks, several steps of one loss per step of another, reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import optim
from graphc.support.errors import GraphcError
from graphc.syntax.format import format_source

QUICK = ("one_device()", "parameter_server(2, 2)")
OTHERS = (
    "accumulate(4)", "mirrored(2) * accumulate(2)", "tensor_split(2)", "zero(2, stage=3)",
    "central_storage(3)", "mirrored(2) * reproducible(4)",
)  # fmt: skip
STRATEGIES = [*QUICK, *(pytest.param(s, marks=pytest.mark.ci) for s in OTHERS)]
RNG = np.random.default_rng(0)
BATCH = {
    "x": RNG.normal(size=(8, 6)).astype(np.float32),
    "y": RNG.normal(size=(8, 4)).astype(np.float32),
}
PARAMS = {
    "body": {"w": RNG.normal(size=(6, 4)).astype(np.float32), "b": np.ones(4, np.float32)},
    "head": {"w": RNG.normal(size=(4, 4)).astype(np.float32)},
}


def loss(p: Any, b: Any) -> Any:
    h = np.tanh(b["x"] @ p["body"]["w"] + p["body"]["b"])
    return np.mean((h @ p["head"]["w"] - b["y"]) ** 2)


def trained(
    optimizer: Any,
    strategy: str = "one_device()",
    steps: int = 3,
    step: Callable[..., Any] = loss,
    params: Any = PARAMS,
) -> tuple[Any, list[dict[str, Any]]]:
    """The params after some steps, and what the steps reported."""
    with graphc.compile(step, params, BATCH, optimizer=optimizer, strategy=strategy) as one:
        reported = [one.step(BATCH) for _ in range(steps)]
        return one.params, reported


# -- groups ----------------------------------------------------------------------------------------


def test_groups_are_losses_over_their_params() -> None:
    """by_group has the bits of one `minimize` for each group."""
    adam, sgd = optim.adamw(0.01), optim.sgd(0.1, momentum=0.9)

    def separately(p: Any, b: Any) -> None:
        value = loss(p, b)
        graphc.minimize(value, adam, over="body.w")
        graphc.minimize(value, sgd, over="head")

    grouped = optim.by_group({"*.b": None, "head": sgd, "*": adam})
    one, _ = trained(grouped)
    two, _ = trained(None, step=separately)
    np.testing.assert_equal(one, two)
    assert (one["body"]["b"] == 1).all() and (one["head"]["w"] != PARAMS["head"]["w"]).all()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_groups_and_reports_are_the_same_under_every_strategy(strategy: str) -> None:
    groups = {"body.b": None, "body": optim.sgd(graphc.hyper("lr", 0.1)), "*": optim.adamw()}
    optimizer = [optim.reporting(), optim.clip_by_global_norm(0.5), optim.by_group(groups)]
    want, reported = trained(optimizer)
    got, same = trained(optimizer, strategy)
    for a, b in zip(reported, same, strict=True):
        assert a.keys() == b.keys() == {"loss", "lr[body]", "lr[*]", "grad_norm"}
        assert a == pytest.approx(b, rel=1e-5)
    np.testing.assert_allclose(got["head"]["w"], want["head"]["w"], rtol=1e-5)
    np.testing.assert_allclose(got["body"]["w"], want["body"]["w"], rtol=1e-5)


def test_a_norm_is_that_of_the_gradients_that_are_trained() -> None:
    def gradients(p: Any, b: Any) -> Any:
        d = graphc.grad(loss)(p, b)
        graphc.report("norm", np.sqrt(np.sum(d["body"]["w"] ** 2) + np.sum(d["head"]["w"] ** 2)))
        return loss(p, b)

    frozen = optim.by_group({"*.b": None, "*": optim.sgd(0.1)})
    _, reported = trained([optim.reporting(), frozen], step=gradients)
    for r in reported:
        assert r["grad_norm"] == pytest.approx(r["norm"], rel=1e-6)
    clipped = [optim.clip_by_global_norm(0.01), optim.reporting(), optim.sgd(0.1)]
    assert trained(clipped)[1][0]["grad_norm"] == pytest.approx(0.01)


def test_decay_masks_are_those_of_the_params() -> None:
    def marked(name: str) -> Any:
        return {"body": {"w": PARAMS["body"]["w"], "b": graphc.param(np.ones(4, np.float32),
                decay=False)}, "head": {"w": PARAMS["head"]["w"]}}[name]  # fmt: skip

    by_flag, _ = trained(optim.adamw(weight_decay=0.3), params={n: marked(n) for n in PARAMS})
    by_mask, _ = trained(optim.adamw(weight_decay=0.3, no_decay="*.b"))
    everything, _ = trained(optim.adamw(weight_decay=0.3))
    np.testing.assert_equal(by_flag, by_mask)
    assert (everything["body"]["b"] != by_mask["body"]["b"]).all()


def test_groups_of_pytorch() -> None:
    """AdamW with a group that does not decay, SGD for a third param, after clip_grad_norm_."""
    start = {"w": [[1.0, -2.0], [0.5, 3.0]], "b": [0.0, 4.0], "head": [2.0, -1.0, 0.5]}
    goal = {"w": [[0.0, 1.0], [2.0, -1.0]], "b": [1.0, 1.0], "head": [0.0, 0.0, 0.0]}
    want = {
        "w": [[0.4646960412759346, -1.4107764121646569], [0.9652988932524306, 2.361369593085378]],
        "b": [0.49621563705162336, 3.499494284040838],
        "head": [1.248840303768947, -0.6244201518844735, 0.31221007594223676],
    }
    head = optim.sgd(0.05, momentum=0.9, nesterov=True, weight_decay=0.01)
    rest = optim.adamw(graphc.hyper("lr", 0.1), weight_decay=0.1, no_decay=["b"])
    chain = [optim.clip_by_global_norm(3.0), optim.by_group({"head": head, "*": rest})]

    def distance(p: Any, b: Any) -> Any:
        return sum(0.5 * np.sum((p[k] - np.array(goal[k])) ** 2) for k in p)

    params = {k: np.array(x) for k, x in start.items()}
    batch = {"x": np.zeros(2)}
    with graphc.compile(distance, params, batch, optimizer=chain) as one:
        for lr in (0.1, 0.1, 0.05, 0.05, 0.2):
            one.hyper["lr"] = lr
            one.step(batch)
        for k, x in want.items():  # PyTorch divides by the norm + 1e-6
            np.testing.assert_allclose(one.params[k], x, rtol=1e-5)


# -- every -----------------------------------------------------------------------------------------


def duel(p: Any, b: Any) -> None:
    value = np.mean((b["x"] @ p["g"] @ p["d"] - b["y"]) ** 2)
    graphc.minimize(value, optim.adam(optim.cosine_decay(0.1, 10)), over="d")
    graphc.minimize(
        -value, [optim.reporting(), optim.adam(optim.cosine_decay(0.1, 10))], over="g", every=3
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_loss_makes_an_update_in_each_third_step(strategy: str) -> None:
    """Its rate and its bias corrections count its own updates."""
    params = {"g": np.eye(6, dtype=np.float32), "d": PARAMS["body"]["w"]}
    schedule, rates = optim.cosine_decay(0.1, 10), []
    with graphc.compile(duel, params, BATCH, strategy=strategy) as one:
        before = one.params
        for number in range(1, 8):
            rates.append(one.step(BATCH)["lr2"])
            after = one.params
            assert (after["d"] != before["d"]).all()
            assert (after["g"] != before["g"]).any() == (number % 3 == 0)
            if number == 3:  # the first update of adam is the rate, in the sign of the gradient
                moved = np.abs(after["g"] - before["g"])
                np.testing.assert_allclose(moved, 0.1, rtol=1e-4)
            before = after
    assert rates == pytest.approx([schedule(t) for t in (0, 0, 0, 1, 1, 1, 2)])


def test_a_scaled_loss_may_be_one_of_every_second_step() -> None:
    def scaled(p: Any, b: Any) -> None:
        graphc.minimize(loss(p, b), [optim.loss_scale(initial=4.0), optim.sgd(0.1)], every=2)

    def plain(p: Any, b: Any) -> None:
        graphc.minimize(loss(p, b), optim.sgd(0.1), every=2)

    with graphc.compile(scaled, PARAMS, BATCH) as one, graphc.compile(plain, PARAMS, BATCH) as two:
        for number in range(1, 6):
            one.step(BATCH), two.step(BATCH)
            assert one.variables()["loss_scale.steps"] == number // 2
            assert one.steps == one.variables()["step"] == number
        np.testing.assert_allclose(one.params["head"]["w"], two.params["head"]["w"], rtol=1e-6)


PROGRAM = """\
step duel(x: f32[batch, 6], y: f32[batch, 4]) {
    param g: f32[6, 6] = normal(0.1)
    param d: f32[6, 4] = normal(0.1)

    error = mse(x @ g @ d, y)
    minimize error with reporting() | by_group({"d": sgd(0.1), "g": none})
    minimize -error with adamw(1e-3, no_decay=["g"]) over {g} order tree every 2 + 1 steps
}
"""


def test_the_language_says_the_same() -> None:
    assert format_source(PROGRAM) == PROGRAM
    graph = graphc.module_of_source(PROGRAM, sizes={"batch": 8}).train
    assert graphc.parse_ir(graphc.print_ir(graph, locs=True)) == graph
    assert graph.objectives[1].every == 3
    assert "over g order tree every 3" in graphc.print_ir(graph)


# -- mistakes --------------------------------------------------------------------------------------

BAD: tuple[tuple[Callable[[], Any], str, str], ...] = (
    (lambda: optim.by_group({"boddy": optim.sgd(), "*": optim.sgd()}), "G0302", "'boddy' matches"),
    (lambda: optim.by_group({"body": optim.sgd()}), "G0302", "no group for parameter 'head.w'"),
    (lambda: optim.adamw(no_decay="bias"), "G0302", "no_decay: 'bias' matches no parameter"),
    (lambda: optim.by_group({}), "G0206", "no group"),
    (lambda: optim.by_group(optim.sgd()), "G0206", "by_group takes patterns"),
    (lambda: optim.by_group({"*": 0.1}), "G0206", "0.1 is not an optimizer"),
    (lambda: optim.by_group({"*": [optim.loss_scale(), optim.sgd()]}), "G0206", "stands before"),
    (lambda: optim.sgd(no_decay=3), "G0206", "no_decay takes patterns"),
)  # fmt: skip


@pytest.mark.parametrize("make, code, words", BAD)
def test_a_mistake_in_groups_is_an_error(make: Callable[[], Any], code: str, words: str) -> None:
    with pytest.raises(GraphcError) as caught:
        trained(make())
    assert caught.value.code == code and words in caught.value.message


@pytest.mark.parametrize("every", [0, -1, 1.5, True, "2"])
def test_every_takes_a_number_of_steps(every: Any) -> None:
    def step(p: Any, b: Any) -> None:
        graphc.minimize(loss(p, b), optim.sgd(), every=every)

    with pytest.raises(GraphcError, match="every= takes a number of steps") as caught:
        graphc.compile(step, PARAMS, BATCH)
    assert caught.value.code == "G0809"


def test_a_report_of_the_optimizer_has_a_name_of_its_own() -> None:
    def step(p: Any, b: Any) -> Any:
        return loss(p, b), {"lr": p["body"]["b"][0]}

    with pytest.raises(GraphcError, match="'lr' is reported by the step") as caught:
        trained([optim.reporting(), optim.sgd()], step=step)
    assert caught.value.code == "G0113"
