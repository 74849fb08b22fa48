"""Loss scaling: gradients are what they were, and one overflow anywhere skips the whole update."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from graphc import optim
from graphc.compiler.driver import compile_module
from graphc.compiler.pipeline import differentiation, run_passes
from graphc.frontend.language.load import module_of_source
from graphc.lowering.program.program import Start
from graphc.passes.partitioning.worker_server_split import ServerPart, WorkerPart
from graphc.plan.plan import Plan
from graphc.runtime.trainer import Trainer
from graphc.strategies import parse_strategy
from graphc.support.errors import GraphcError
from graphc.testing.compute import evaluate

SOURCE = """
step s(x: DTYPE[batch, 6], y: DTYPE[batch]) {
    param w: DTYPE[6] = normal(0.3)
    param b: DTYPE = 0.0
    minimize mean(square(x @ w + b - y)) with HOW
}
"""
SCALED = (
    "loss_scale(initial=1024.0, grow_every=3) | clip_by_global_norm(0.5) | adam(0.05) | ema(0.9)"
)
PLAIN = "clip_by_global_norm(0.5) | adam(0.05) | ema(0.9)"
STRATEGIES = (
    "one_device()", "mirrored(2)", "mirrored(2) * accumulate(2)", "zero(2, stage=2)",
    'tensor_split(2, {"w": 0})',
)  # fmt: skip


def plan(how: str, strategy: str = "one_device()", dtype: str = "f32") -> Plan:
    text = SOURCE.replace("HOW", how).replace("DTYPE", dtype)
    return compile_module(module_of_source(text, sizes={"batch": 8}), parse_strategy(strategy))


def batch(dtype: type = np.float32) -> dict[str, np.ndarray]:
    x = np.random.default_rng(2).standard_normal((8, 6)).astype(dtype)
    return {"x": x, "y": x.sum(1)}


def overflowing() -> dict[str, np.ndarray]:
    """A batch of which the last example alone is too large: one replica's, at one turn."""
    made = batch()
    made["x"][-1] = 1e19
    return made


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_without_an_overflow_nothing_changes_but_the_scale(strategy: str) -> None:
    with Trainer(plan(SCALED, strategy)) as scaled, Trainer(plan(PLAIN, strategy)) as plain:
        for _ in range(4):
            scaled.step(batch())
            plain.step(batch())
        found, want = scaled.variables(), plain.variables()
        for name, value in want.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-7)
        assert found["loss_scale"] == 2048 and found["loss_scale.steps"] == 1


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_overflow_on_one_replica_skips_the_update_on_all(strategy: str) -> None:
    with Trainer(plan(SCALED, strategy)) as trainer:
        trainer.step(batch())
        before = trainer.variables()
        trainer.step(overflowing())
        after = trainer.variables()
        assert after.pop("loss_scale") == before.pop("loss_scale") / 2
        assert after.pop("loss_scale.steps") == 0 and before.pop("loss_scale.steps") == 1
        for name, value in before.items():
            np.testing.assert_array_equal(after[name], value, err_msg=name)
        trainer.step(batch())
        assert np.isfinite(trainer.variables()["w"]).all()
        assert trainer.variables()["step"] == 2


def test_half_precision_finds_a_scale_that_fits() -> None:
    with Trainer(plan("loss_scale(initial=32768.0) | sgd(0.01)", "mirrored(2)", "f16")) as trainer:
        first = trainer.step(batch(np.float16))["loss"]
        for _ in range(30):
            last = trainer.step(batch(np.float16))["loss"]
        assert last < first and 1 <= trainer.variables()["loss_scale"] < 32768


def test_the_decision_costs_no_collective_of_its_own_under_mirrored() -> None:
    def exchanges(how: str) -> Counter[str]:
        program = plan(how, "mirrored(2)").programs["train"]
        return Counter(x.op.name for x in program.instructions if isinstance(x, Start))

    assert exchanges("loss_scale() | sgd(0.1)") == exchanges("clip_by_value(9.0) | sgd(0.1)")


def test_loss_scale_stands_first() -> None:
    with pytest.raises(GraphcError, match="comes first"):
        optim.chain(optim.clip_by_global_norm(1.0), optim.loss_scale(), optim.sgd())
    with pytest.raises(GraphcError, match="grow_every"):
        optim.loss_scale(grow_every=0)


# -- several losses -------------------------------------------------------------------------------

TWO = """
step s(x: f32[batch, 6], z: f32[batch, 6]) {
    param a: f32[6] = ones()
    param b: f32[6] = ones()
    minimize mean(square(x @ a)) with FIRST over {a}
    minimize mean(square(z @ b)) with SECOND over {b}
}
"""
FIRST = 'loss_scale(1024.0, state="one") | adam(0.05)'
SECOND = 'loss_scale(512.0, state="two") | adam(0.05) | ema(0.9)'


def two(first: str, second: str, strategy: str = "one_device()") -> Plan:
    text = TWO.replace("FIRST", first).replace("SECOND", second)
    return compile_module(module_of_source(text, sizes={"batch": 8}), parse_strategy(strategy))


def alone(name: str, how: str, batches: list[np.ndarray]) -> dict[str, np.ndarray]:
    """The variables of one of the two losses, trained without the other."""
    text = SOURCE.replace("HOW", how).replace("DTYPE", "f32").replace("param b: f32 = 0.0", "")
    text = text.replace("x @ w + b - y", "x @ w").replace("normal(0.3)", "ones()")
    with Trainer(compile_module(module_of_source(text, sizes={"batch": 8}))) as trainer:
        for x in batches:
            trainer.step({"x": x, "y": np.zeros(8, np.float32)})
        found = trainer.variables()
    return {n.replace("w", name, 1): v for n, v in found.items() if n.startswith("w")}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("strategy", STRATEGIES[:4])
@pytest.mark.parametrize("second", [SECOND, "adam(0.05) | ema(0.9)"])
def test_an_overflow_of_one_loss_skips_its_own_update_only(second: str, strategy: str) -> None:
    good, bad = batch()["x"], overflowing()["x"]
    with Trainer(two(FIRST, second, strategy)) as trainer:
        for x in (good, bad, good):
            trainer.step({"x": x, "z": good})
        found = trainer.variables()
    want = alone("a", FIRST, [good, good]) | alone("b", second, [good, good, good])
    assert {"a.m", "b.m", "b.ema"} <= set(want)
    for name, value in want.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-7, err_msg=name)
    assert found["step"] == 3 and found["one"] == 512 and found["one.updates"] == 2


def test_two_losses_may_not_share_a_scale() -> None:
    with pytest.raises(GraphcError, match="two losses share the scale 'loss_scale'") as caught:
        two("loss_scale() | sgd(0.1)", "loss_scale() | sgd(0.1)")
    assert caught.value.code == "G0468" and 'state="critic_scale"' in str(caught.value.help)
    assert caught.value.span is not None and caught.value.span.line == 6


# -- what else a step keeps ------------------------------------------------------------------------

COUNTING = """
step s(x: f32[batch, 6]) {
    param w: f32[6] = ones()
    state seen: f32 = 0.0
    seen <- seen + mean(x[:, 0] * 0.0 + 1.0)
    minimize mean(square(x @ w)) with HOW
}
"""


@pytest.mark.parametrize(
    ("every", "strategy"),
    [("", "mirrored(2)"), *(pytest.param(" every 2 steps", s, marks=pytest.mark.ci)
                            for s in STRATEGIES[:3])],
)  # fmt: skip
def test_states_of_the_step_keep_their_values_too(every: str, strategy: str) -> None:
    text = COUNTING.replace("HOW", f"loss_scale(1024.0) | sgd(0.01){every}")
    made = compile_module(module_of_source(text, sizes={"batch": 8}), parse_strategy(strategy))
    with Trainer(made) as trainer:
        for b in (batch(), overflowing(), batch(), batch()):
            trainer.step({"x": b["x"]})
        assert trainer.variables()["seen"] == 3


def test_a_stale_push_is_divided_by_the_scale_that_it_was_multiplied_with() -> None:
    module = module_of_source(
        SOURCE.replace("HOW", "loss_scale(1024.0) | sgd(0.1)").replace("DTYPE", "f32"),
        sizes={"batch": 8},
    )
    train = run_passes(module.train, differentiation())
    values = {"w": np.ones(6, np.float32), "b": np.float32(0), "loss_scale": np.float32(1024)}
    pushed, new = [], []
    for scale in (1024, 512):  # of the server; the worker had 1024
        worker, server = (p.run(train) for p in (WorkerPart(), ServerPart(1, 0)))
        sent = evaluate(worker, values | batch())
        pushed.append({name: sent[x] for name, x in worker.outputs.items()})
        found = evaluate(server, values | {"loss_scale": np.float32(scale)} | pushed[-1])
        new.append(found[server.updates["w"]])
        assert found[server.updates["loss_scale"]] == scale
    np.testing.assert_array_equal(*new)
    assert all(x.size == 1 for x in pushed[0].values() if x.dtype == bool)
