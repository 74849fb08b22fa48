"""Wrong indices, labels and values that are not finite: what is said, and that nothing moves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from graphc_numpy import NumpyBackend

import graphc
from graphc import nn
from graphc.cli.run import run_command
from graphc.support import config
from graphc.support.errors import GraphcError

BACKENDS = ["numpy", NumpyBackend(native=False), "reference"]
N = 12


def params() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    shapes = {"e": (50, 4), "v": (4, 5)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def batch(seed: int = 0, n: int = N) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"ids": rng.integers(0, 50, n).astype("i4"), "y": rng.integers(0, 5, n).astype("i4")}


def loss(p: Any, b: Any) -> Any:
    return np.mean(nn.cross_entropy(np.tanh(p["e"][b["ids"]]) @ p["v"], b["y"]))


def made(strategy: str = "one_device()", backend: Any = "numpy", **more: Any) -> graphc.StepTrainer:
    optimizer = more.pop("optimizer", graphc.optim.adagrad(0.1))
    return graphc.compile(
        more.pop("loss", loss), params(), more.pop("batch", batch()), optimizer=optimizer,
        strategy=strategy, backend=backend, **more,
    )  # fmt: skip


def unchanged_by(trainer: graphc.StepTrainer, bad: Any) -> GraphcError:
    """The error of a bad step, which leaves every bit as it was."""
    before = trainer.variables()
    with pytest.raises(GraphcError) as caught:
        trainer.step(bad)
    after = trainer.variables()
    assert trainer.trainer.valid
    assert all(after[name].tobytes() == a.tobytes() for name, a in before.items())
    return caught.value


STRATEGIES = [
    "one_device()", "mirrored(2) * accumulate(3)", "zero(2, stage=3)", 'tensor_split(2, {"e": 1})',
    "mirrored(2) * reproducible(4)", "diloco(2, 2)",
]  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("strategy", "backend"),
    [(s, "numpy") for s in STRATEGIES] + [(STRATEGIES[1], b) for b in BACKENDS[1:]],
    ids=str,
)
def test_a_wrong_label_is_named_with_its_row_of_the_whole_batch(
    strategy: str, backend: Any
) -> None:
    with made(strategy, backend) as trainer:
        for n, row in ((N, 10), (N - 3, 7), (N, 3)):  # the long way, a short batch, the short way
            bad = batch(n=n)
            bad["y"][row] = 5
            error = unchanged_by(trainer, bad)
            text = f"cross_entropy: label 5 is out of range for 5 classes, in row {row}"
            assert (error.code, error.message) == ("G0506", text)
            assert error.span is not None
            bad = batch(n=n)
            bad["ids"][row] = 50
            error = unchanged_by(trainer, bad)
            text = f"gather: index 50 is out of range for a dim of 50, in row {row}"
            assert (error.code, error.message) == ("G0506", text)
            trainer.step(batch(row))


@pytest.mark.parametrize("optimizer", [graphc.optim.adagrad(0.1), graphc.optim.sgd(0.1)], ids=str)
@pytest.mark.parametrize("sparse", ["on", "off"])
def test_an_index_of_a_table_that_the_update_writes_is_checked_before(
    optimizer: Any, sparse: str
) -> None:
    """Of a sparse table adagrad looks its own state up, and so checked the index beside a write."""
    with made(optimizer=optimizer, sparse=sparse, batch=batch(n=8)) as trainer:
        for seed in range(3):
            bad = batch(seed, 8)
            bad["ids"][-1] = 50
            unchanged_by(trainer, bad)
            trainer.step(batch(seed, 8))


def by_hits(p: Any, b: Any) -> Any:
    return np.mean(nn.cross_entropy(nn.one_hot(b["ids"], 50) @ p["e"] @ p["v"], b["y"]))


def test_a_wrong_index_in_the_short_way_is_found_in_one_native_call() -> None:
    with made("mirrored(2) * accumulate(2)", loss=by_hits) as trainer:
        trainer.step(batch())
        trainer.step(batch())
        fast_path = trainer.trainer.fast_path.__self__.full  # type: ignore[union-attr]
        assert fast_path.done == 1
        (runs,) = fast_path._runs.values()
        assert len(runs) == 3  # words are cleared; all devices and turns; a look at a word
        bad = batch()
        bad["y"][8] = -1
        assert "label -1 is out of range for 5 classes, in row 8" in str(unchanged_by(trainer, bad))
        assert fast_path.done == 1
        trainer.step(batch())
        assert fast_path.done == 2


@pytest.mark.parametrize(
    "strategy", ["mirrored(2) * accumulate(3)", "zero(2)", "mirrored(2) * reproducible(4)"]
)
def test_ignored_labels_do_not_count_on_any_mesh(strategy: str) -> None:
    def ignoring(p: Any, b: Any) -> Any:
        logits = np.tanh(p["e"][b["ids"]]) @ p["v"]
        return nn.cross_entropy(logits, b["y"], ignore_index=-100, reduction="mean")

    def some(seed: int, n: int) -> Any:
        b = batch(seed, n)
        b["y"][: n // 2 + 1] = -100  # all of a device's or of a microbatch's
        return b

    found = []
    for way in ("one_device()", strategy):
        with made(way, loss=ignoring, optimizer=graphc.optim.sgd(0.1)) as trainer:
            losses = [trainer.step(some(k, n))["loss"] for k, n in enumerate((N, N, 7, 5))]
            metrics = trainer.evaluate([some(8, N), some(9, 5)])
            found.append([*losses, metrics["loss"]])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)
    p, b = params(), some(0, N)
    logits = np.tanh(p["e"][b["ids"]]) @ p["v"]
    each = np.log(np.exp(logits).sum(1)) - logits[np.arange(N), np.maximum(b["y"], 0)]
    assert found[0][0] == pytest.approx(each[b["y"] >= 0].mean(), rel=1e-5)


# -- values that are not finite -------------------------------------------------------------------


def regression(p: Any, b: Any) -> Any:
    z = b["x"] @ (p["v"][:, 0] + p["e"][0])
    target = np.log(b["t"])
    return np.mean(np.square(z - target)) + np.mean(np.sqrt(np.abs(z)) * b["s"])


def numbers(n: int = N, **changed: float) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    made = {k: rng.uniform(1, 2, n).astype(np.float32) for k in "ts"}
    made["x"] = rng.normal(size=(n, 4)).astype(np.float32)
    for name, value in changed.items():
        made[name][8] = value
    return made


def parts(b: dict[str, Any], n: int) -> Iterator[dict[str, Any]]:
    for k in range(n):
        yield {name: a[k * N // n : (k + 1) * N // n] for name, a in b.items()}


CASES = [
    (
        {"t": 0.0},
        r"'loss' is not finite: %target is the first node that gave -inf",
        "log(0) is -inf",
    ),
    (
        {"t": -1.0},
        r"'loss' is not finite: %target is the first node that gave nan",
        "log(-1) is nan",
    ),
    ({"t": np.nan}, r"'loss' is not finite: entry 't' of the batch has nan", ""),
    (
        {"x": 0.0},
        r"'[ev]' is not finite: %mul\S* is the first node that gave nan",
        "mul(inf, 0) is nan",
    ),
]


@pytest.mark.parametrize("strategy", ["one_device()", "mirrored(2) * accumulate(2)", "zero(2)"])
def test_what_made_the_first_nan_is_named(strategy: str) -> None:
    with made(strategy, loss=regression, batch=numbers(), debug_nans=True) as trainer:
        trainer.step(numbers())
        for changed, message, words in CASES:
            error = unchanged_by(trainer, numbers(**changed))
            assert error.code == "G0537"
            assert re.match(message, error.message), error.message
            assert words in (error.help or "")
            assert (" on device 1" in error.message) == ("2" in strategy)
            assert error.span is not None  # the line that made it, or that of the step
        if "accumulate" in strategy:
            unchanged_by(trainer, parts(numbers(t=0.0), 2))
        trainer.step(numbers())
    with made(strategy, loss=regression, batch=numbers()) as plain:
        plain.step(numbers())
        plain.step(numbers())
        assert plain.params_sha256() == trainer_hash(strategy)


def trainer_hash(strategy: str) -> str:
    with made(strategy, loss=regression, batch=numbers(), debug_nans=True) as trainer:
        trainer.step(numbers())
        trainer.step(numbers())
        return trainer.params_sha256()


def test_the_environment_asks_for_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHC_DEBUG_NANS", "1")
    config.get.cache_clear()
    try:
        with made(loss=regression, batch=numbers()) as trainer:
            assert unchanged_by(trainer, numbers(t=0.0)).code == "G0537"
    finally:
        config.get.cache_clear()


def test_the_command_line_names_the_line_of_the_source(tmp_path: Path) -> None:
    t = np.ones(8, np.float32)
    t[5] = 0
    np.savez(tmp_path / "d.npz", t=t)
    text = """data train = npz("d.npz", batch=4)
step s(t: f32[batch]) {
    param w: f32 = zeros()
    minimize mean(square(w - log(t))) with sgd(0.1)
}
"""
    (tmp_path / "s.gc").write_text(text)
    options = [str(tmp_path / "s.gc"), "--quiet", "--epochs", "1"]
    plain = CliRunner().invoke(run_command, options)
    assert plain.exception is None, plain.output
    watched = CliRunner().invoke(run_command, [*options, "--debug-nans"])
    assert isinstance(watched.exception, GraphcError)
    assert watched.exception.code == "G0537"
    assert watched.exception.span is not None
    assert watched.exception.span.line == 4
