"""Hyperparameters: numbers that are set between steps, with the bits of numbers that are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.passes.differentiation.differentiate import Differentiate
from graphc.plan.plan import load
from graphc.runtime.trainer import Trainer
from graphc.support.errors import GraphcError
from graphc.syntax.format import format_source
from graphc.verify import verify

QUICK = ("one_device()", "parameter_server(2, 2)", "local_sgd(2, every=2)")
OTHERS = (
    "zero(2, stage=3)",
    "accumulate(4)", "mirrored(2) * accumulate(2)", "tensor_split(2)", "central_storage(3)",
    "mirrored(2) * reproducible(4)",
)  # fmt: skip
STRATEGIES = [*QUICK, *(pytest.param(s, marks=pytest.mark.ci) for s in OTHERS)]
RNG = np.random.default_rng(0)
BATCH = {
    "x": RNG.normal(size=(8, 6)).astype(np.float32),
    "y": RNG.normal(size=(8, 4)).astype(np.float32),
}
W = RNG.normal(size=(6, 4)).astype(np.float32)
PARAMS = {"w": W, "b": np.zeros(4, np.float32)}


def trainer(hyper: bool, strategy: str = "one_device()", **options: Any) -> graphc.StepTrainer:
    """A step with two numbers, which are hyperparameters or written into it."""

    def loss(params: Any, batch: Any) -> Any:
        margin = graphc.hyper("margin", 0.3) if hyper else 0.3
        error = batch["x"] @ params["w"] + params["b"] - batch["y"]
        return np.mean(np.maximum(error**2 - 3 * margin / 7, 0))

    lr = graphc.hyper("lr", 3e-3) if hyper else 3e-3
    with np.errstate(all="ignore"):
        return graphc.compile(
            loss, PARAMS, BATCH, optimizer=graphc.optim.adamw(lr), strategy=strategy, **options
        )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_hyperparameter_has_the_bits_of_the_number_and_is_set_between_steps(
    strategy: str,
) -> None:
    with trainer(True, strategy) as hyper, trainer(False, strategy) as plain:
        for _ in range(3):
            assert hyper.step(BATCH) == plain.step(BATCH)
        assert hyper.params_sha256() == plain.params_sha256()
        hyper.hyper["lr"] = 0
        hyper.step(BATCH)
        assert hyper.params_sha256() == plain.params_sha256()
        hyper.hyper["margin"] = 1e6
        assert hyper.step(BATCH)["loss"] == 0
        assert dict(hyper.hyper) == {"lr": 0.0, "margin": 1e6}
        assert hyper.variables("hyper") == {"lr": 0.0, "margin": 1e6}
        assert hyper.evaluate([BATCH])["loss"] == 0


@pytest.mark.parametrize(
    "dtype, mixed",
    [(np.float16, False), (np.float16, True), (np.float32, False), (np.float64, False)],
)
def test_a_hyperparameter_takes_the_dtype_of_what_it_meets(dtype: Any, mixed: bool) -> None:
    """As a number does, whether the step has other floats or not."""
    batch = {"x": BATCH["x"].astype(dtype)}
    params = {"w": PARAMS["w"].astype(dtype)} | ({"c": np.zeros(4, np.float32)} if mixed else {})

    def loss(p: Any, b: Any, number: Any) -> Any:
        z = np.where(b["x"] @ p["w"] > number, number * 3 / 7, b["x"] @ p["w"] * number)
        graphc.report("z", np.clip(z, -number, np.sqrt(number)))
        return np.mean(z).astype(np.float32) + sum(np.sum(p[k]) for k in ("c",) if k in p)

    results = []
    for number in (lambda: graphc.hyper("n", 0.7), lambda: 0.7):
        with graphc.compile(
            lambda p, b, number=number: loss(p, b, number()),
            params, batch, optimizer=graphc.optim.sgd(0.1),
        ) as one:  # fmt: skip
            results.append((one.step(batch), one.step(batch), one.params_sha256()))
    hyper, plain = results
    np.testing.assert_equal(hyper, plain)
    assert hyper[0]["z"].dtype == plain[0]["z"].dtype == dtype


def test_a_hyperparameter_is_saved_and_resumed_under_another_strategy(tmp_path: Path) -> None:
    with trainer(True) as one:
        one.hyper["lr"] = 0.25
        one.step(BATCH)
        one.save(tmp_path / "a.safetensors")
    for strategy in ("mirrored(2)", "parameter_server(2, 1)"):
        with trainer(True, strategy) as other:
            other.load(tmp_path / "a.safetensors")
            assert dict(other.hyper) == {"lr": 0.25, "margin": 0.3}


def test_a_checkpoint_may_lack_hyperparameters_or_have_more(tmp_path: Path) -> None:
    for hyper in (False, True):
        with trainer(hyper) as one, trainer(not hyper) as other:
            one.step(BATCH)
            one.save(tmp_path / "a.safetensors")
            other.load(tmp_path / "a.safetensors")
            assert other.step(BATCH) == one.step(BATCH)


def test_replicas_that_meet_at_the_end_of_a_run_keep_what_is_set_then() -> None:
    with trainer(True, "local_sgd(2, every=3)") as one:
        one.fit([BATCH] * 4)
        one.hyper["lr"] = 0.0
        before = one.params_sha256()
        one.step(BATCH)
        assert one.hyper["lr"] == 0.0
        one.fit([BATCH])
        assert before == one.params_sha256()


def test_workers_see_what_a_callback_sets_while_they_train() -> None:
    losses = []

    def stop(number: int, results: dict[str, Any]) -> None:
        losses.append(results["loss"])
        one.hyper["margin"] = 1e6

    with trainer(True, "parameter_server(2, 2, staleness=1)") as one:
        one.fit([BATCH] * 12, on_step=stop)
    assert losses[0] > 0 == losses[-1]


def test_the_same_name_is_the_same_hyperparameter() -> None:
    def loss(params: Any, batch: Any) -> Any:
        lr = graphc.hyper("lr", 0.5)
        graphc.report("lr_now", lr)
        return np.mean((batch["x"] @ params["w"]) ** 2) * lr

    optimizer = graphc.optim.sgd(graphc.hyper("lr", 0.5))
    with graphc.compile(loss, {"w": W}, BATCH, optimizer=optimizer) as one:
        one.hyper["lr"] = 0.125
        assert one.step(BATCH)["lr_now"] == 0.125
    with pytest.raises(GraphcError, match=r"starts from 0\.5 and 0\.1") as caught:
        graphc.compile(loss, {"w": W}, BATCH, optimizer=graphc.optim.sgd(graphc.hyper("lr", 0.1)))
    assert caught.value.code == "G0208"


def test_a_rate_is_any_expression_of_the_step() -> None:
    """And a schedule may be a coefficient: both are those of plain numbers."""
    warm = graphc.optim.linear_warmup(1.0, 3)

    def loss(params: Any, batch: Any) -> None:
        rate = graphc.hyper("lr", 0.1) * np.cos(graphc.step_count() / 5) / (1 + 0.1)
        graphc.report("coefficient", warm * np.sum(batch["x"] * 0 + 1))
        graphc.minimize(np.mean(batch["x"] @ params["w"]), graphc.optim.sgd(rate))

    slope = np.broadcast_to(BATCH["x"].mean(0)[:, None] / 4, (6, 4))
    with graphc.compile(loss, {"w": W}, BATCH, strategy="mirrored(2)") as one:
        want = W.astype(np.float64)
        for t in range(4):
            assert one.step(BATCH)["coefficient"] == pytest.approx(warm(t) * 48)
            want = want - 0.1 * np.cos(t / 5) / 1.1 * slope
            np.testing.assert_allclose(one.params["w"], want, rtol=1e-5)


def test_a_schedule_times_a_hyperparameter_is_a_rate() -> None:
    """In Python and in the language, where it has the bits of the schedule."""
    warm = graphc.optim.linear_warmup(0.2, 3)
    rate = graphc.hyper("scale", 1.0) * warm
    assert rate(1) == warm(1) and (0.5 * rate)(1) == (rate * 0.5)(1) == 0.5 * warm(1)

    def loss(params: Any, batch: Any) -> Any:
        return np.mean((batch["x"] @ params["w"] - batch["y"]) ** 2)

    hashes = []
    for lr in (warm, rate):
        chain = [graphc.optim.reporting(), graphc.optim.sgd(lr)]
        with graphc.compile(loss, {"w": W}, BATCH, optimizer=chain) as one:
            hashes += [one.step(BATCH), one.params_sha256()]
            if one.hyper:
                one.hyper["scale"] = 0.5
                assert one.step(BATCH)["lr"] == 0.5 * warm(1)
    assert hashes[:2] == hashes[2:]
    text = PROGRAM.replace("{lr}", "1.0").replace(
        "adam(lr)", "adam(2 * cosine_decay(0.1, 10) * lr)"
    )
    graph = graphc.module_of_source(text, sizes={"batch": 8}).train
    assert graphc.parse_ir(graphc.print_ir(graph, locs=True)) == graph
    with pytest.raises(GraphcError, match="does not work on"):
        graphc.module_of_source(text.replace("2 * cos", "none * cos"), sizes={"batch": 8})


# -- in the language -------------------------------------------------------------------------------

PROGRAM = """\
step line(x: f32[batch, 6], y: f32[batch, 4]) {
    hyper lr = {lr}
    param w: f32[6, 4] = normal(0.1)

    minimize mse(x @ w, y) with adam(lr)
    report lr = lr
}
"""


def test_a_program_declares_one_which_a_plan_keeps(tmp_path: Path) -> None:
    text = PROGRAM.replace("{lr}", "0.01")
    assert format_source(text) == text
    module = graphc.module_of_source(text, sizes={"batch": 8})
    graph = module.train
    assert graphc.parse_ir(graphc.print_ir(graph, locs=True)) == graph
    assert "hyper lr" in graphc.print_ir(graph)
    plan = graphc.compile_module(module, graphc.parse_strategy("mirrored(2)"))
    (tmp_path / "a.plan").write_text(plan.text(), encoding="utf-8")
    with Trainer(load(tmp_path / "a.plan")) as one:
        assert one.step(BATCH)["lr"] == pytest.approx(0.01)
        one.hyper["lr"] = 0.5
        assert one.step(BATCH)["lr"] == 0.5


# -- mistakes ------------------------------------------------------------------------------------


def test_an_unknown_name_has_a_suggestion() -> None:
    with trainer(True) as one:
        for name, help in (("magrin", "did you mean 'margin'"), ("zzz", "there are: margin, lr")):
            with pytest.raises(GraphcError, match="no hyperparameter") as caught:
                one.hyper[name] = 1
            assert caught.value.code == "G0571" and help in str(caught.value.help)
        assert "zzz" not in one.hyper and one.hyper.get("zzz") is None
        with pytest.raises(GraphcError, match="not removed"):
            del one.hyper["lr"]
        with pytest.raises(GraphcError, match="are entries") as caught:
            one.hyper.lr = 0.5
        assert 'trainer.hyper["lr"] = 0.5' in str(caught.value.help)
        for name in ("lr", "margin", "learning_rate"):
            with pytest.raises(GraphcError, match=f"no '{name}' to set") as caught:
                setattr(one, name, 0.5)
            assert "trainer.hyper[" in str(caught.value.help)
        with pytest.raises(AttributeError):
            one.hyper = {"lr": 0.5}
        assert repr(one.hyper) == "{'margin': 0.3, 'lr': 0.003}"
    with trainer(False) as one, pytest.raises(GraphcError) as caught:
        one.hyper["lr"] = 1
    assert 'graphc.hyper("lr", 1e-3)' in str(caught.value.help)


@pytest.mark.parametrize(
    "value", ["0.1", None, True, np.nan, np.inf, 10**400, [0.1], np.ones(2), 1j]
)
def test_a_value_is_one_finite_number(value: Any) -> None:
    with trainer(True) as one:
        with pytest.raises(GraphcError, match="'lr' is a finite number") as caught:
            one.hyper["lr"] = value
        assert caught.value.code == "G0572"
        assert one.hyper["lr"] == 3e-3
    with pytest.raises(GraphcError) as caught:
        graphc.hyper("lr", value)
    assert caught.value.code == "G0572"


def test_numbers_of_numpy_are_numbers() -> None:
    with trainer(True) as one:
        for value in (np.float32(0.5), np.int64(2), np.array(0.25)):
            one.hyper["lr"] = value  # type: ignore[assignment]
            assert one.hyper["lr"] == float(value)


def test_a_text_of_a_graph_may_not_take_operands_that_are_not_there() -> None:
    text = """graphc-ir 1
    graph g {
      param w : f32[2]
      %w : f32[2] = variable {source_name="w"}
      %l : f32[] = reduce_sum %w {over=(0,)}
      %r : f64[] = const {value=0.5, dtype=f64}
      minimize %l with sgd(lr=rate_operand(number=NUMBER)) of %r over w
    }"""
    run = Differentiate().run
    assert "w" in run(graphc.parse_ir(text.replace("NUMBER", "0"))).updates
    for number in ("1", "-1"):
        with pytest.raises(GraphcError, match="the objective has 1") as caught:
            run(graphc.parse_ir(text.replace("NUMBER", number)))
        assert caught.value.code == "G0206"
    for wrong in ("%missing", "%l"):
        with pytest.raises(GraphcError, match=r"minimize names|takes f64 scalars") as caught:
            verify(graphc.parse_ir(text.replace("NUMBER", "0").replace("%r over", f"{wrong} over")))
        assert caught.value.code == "G0919"


@pytest.mark.parametrize("name", ["reference", "numpy"])
def test_every_backend_reads_what_is_set(name: str) -> None:
    with trainer(True, "mirrored(2)", backend=name) as one:
        one.step(BATCH)
        before = one.params_sha256()
        one.hyper["lr"] = 0
        one.step(BATCH)
        assert one.params_sha256() == before


def test_a_tensor_is_no_rate() -> None:
    def loss(params: Any, batch: Any) -> None:
        graphc.minimize(np.mean(params["w"] ** 2), graphc.optim.sgd(batch["x"]))

    with pytest.raises(GraphcError, match="a rate is one number") as caught:
        graphc.compile(loss, {"w": W}, BATCH)
    assert caught.value.code == "G0206" and caught.value.span is not None


# -- every number of an optimizer ------------------------------------------------------------------

OPTIMIZERS: dict[str, Any] = {
    "adamw": lambda n, o: [
        o.clip_by_global_norm(n("norm", 0.3)), o.clip_by_value(n("limit", 0.07)),
        o.adamw(n("lr", 3e-2), n("b1", 0.8), n("b2", 0.95), weight_decay=n("wd", 0.1)),
        o.ema(n("ema", 0.7)),
    ],
    "sgd": lambda n, o: o.sgd(n("lr", 0.1), n("m", 0.7), nesterov=True, weight_decay=n("wd", 0.1)),
    "rmsprop": lambda n, o: o.rmsprop(n("lr", 0.1), n("d", 0.8), momentum=n("m", 0.7)),
    "lion": lambda n, o: o.lion(n("lr", 0.1), n("b1", 0.8), n("b2", 0.95), n("wd", 0.1)),
    "lamb": lambda n, o: o.lamb(n("lr", 0.1), n("b1", 0.8), n("b2", 0.95), weight_decay=n("wd", 1)),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.ci] * (n != "adamw")) for n in OPTIMIZERS]
)
def test_any_number_of_an_optimizer_may_be_a_hyperparameter(name: str) -> None:
    hashes = []
    for number in (graphc.hyper, lambda name, value: value):
        with graphc.compile(
            lambda p, b: np.mean((b["x"] @ p["w"] - b["y"]) ** 2), {"w": W}, BATCH,
            optimizer=OPTIMIZERS[name](number, graphc.optim), strategy="zero(2)",
        ) as one:  # fmt: skip
            for _ in range(3):
                one.step(BATCH)
            hashes.append((one.params_sha256(), one.variables("slot")))
    np.testing.assert_equal(*hashes)


def test_the_rate_of_dropout_may_be_a_hyperparameter() -> None:
    def loss(p: Any, b: Any, rate: Any) -> Any:
        dropped = graphc.nn.dropout(b["x"] @ p["w"], rate)
        graphc.report("zeros", np.sum(dropped == 0))
        return np.mean(dropped)

    results = []
    for rate in (lambda: graphc.hyper("rate", 0.3), lambda: 0.3):
        with graphc.compile(
            lambda p, b, rate=rate: loss(p, b, rate()), {"w": W}, BATCH,
            optimizer=graphc.optim.sgd(0.1),
        ) as one:  # fmt: skip
            results.append([one.step(BATCH) for _ in range(2)])
            if one.hyper:
                one.hyper["rate"] = 0.0
                assert one.step(BATCH)["zeros"] == 0
                one.hyper["rate"] = 0.3
    assert results[0] == results[1]


def test_to_ask_for_an_unknown_name_makes_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with trainer(True, "one_device()") as one:
        monkeypatch.setattr(GraphcError, "__init__", None)
        assert "lr" in one.hyper and "rate" not in one.hyper
