"""Variables that each replica has a copy of: in a step, on read, and in a checkpoint."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.support.errors import GraphcError, GraphcWarning

X = np.arange(8, dtype=np.float64).reshape(8, 1)
BATCH = {"x": X}
W = np.ones((1, 1))


@pytest.fixture(autouse=True)
def means_of_means_are_meant() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphcWarning)
        yield


def trainer(
    strategy: str, first: Any, new: Any, read: Any = None, check: bool = False, **how: str
) -> graphc.api.StepTrainer:
    """A step with a state `n`, whose new value is new(n, x of the replica)."""

    def loss(p: Any, b: Any) -> Any:
        n = graphc.state("n", first, **how)
        graphc.update("n", new(n, graphc.nn.per_replica(b["x"])))
        if read:
            graphc.report("seen", read(n))
        return np.mean((b["x"] @ p["w"]) ** 2)

    sgd = graphc.optim.sgd(0.0)
    return graphc.compile(
        loss, {"w": W}, BATCH, optimizer=sgd, strategy=strategy, check_replicas=check
    )


def value(t: graphc.api.StepTrainer) -> np.ndarray:
    found: np.ndarray = t.variables()["n"]
    return found


SUMS = X[:4].sum(), X[4:].sum()  # what two replicas have

WRITES = [
    ("sum", lambda n, x: np.sum(x), sum(SUMS)),
    ("sum", lambda n, x: n + np.sum(x), 1 + sum(SUMS)),
    ("sum", lambda n, x: np.sum(x) + n, 1 + sum(SUMS)),
    ("sum", lambda n, x: n - np.sum(x), 1 - sum(SUMS)),
    ("mean", lambda n, x: np.sum(x), sum(SUMS) / 2),
    ("mean", lambda n, x: n + np.sum(x), 1 + sum(SUMS) / 2),
    ("only_first_replica", lambda n, x: np.sum(x), SUMS[0]),
    ("only_first_replica", lambda n, x: n + np.sum(x), 1 + SUMS[0]),
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("strategy", ["mirrored(2)", "accumulate(2)", "central_storage(2)"])
@pytest.mark.parametrize(("aggregation", "new", "want"), WRITES)
def test_a_write_is_aggregated(aggregation: str, new: Any, want: float, strategy: str) -> None:
    with trainer(strategy, np.float64(1), new, aggregation=aggregation) as t:
        t.step(BATCH)
        assert value(t) == pytest.approx(want)


@pytest.mark.parametrize(
    ("aggregation", "want"), [("sum", 29), ("mean", 15), ("only_first_replica", 7)]
)
def test_on_read_a_copy_is_the_replicas_own_until_it_is_read(aggregation: str, want: float) -> None:
    first = np.float64(1)
    with trainer(
        "mirrored(2)",
        first,
        lambda n, x: n + np.sum(x),
        lambda n: n,
        aggregation=aggregation,
        when="read",
    ) as t:
        assert value(t) == 1
        assert t.step(BATCH)["seen"] == 1  # before the step
        assert value(t) == pytest.approx(want)
        assert t.step(BATCH)["seen"] == pytest.approx(want)


def test_a_count_that_is_saved_is_restored_undivided_on_any_number_of_replicas(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "n.safetensors")

    def new(n: Any, x: Any) -> Any:
        return n + np.sum(graphc.nn.cast(x, dtype=np.dtype(np.int32)))

    def made(strategy: str) -> graphc.api.StepTrainer:
        return trainer(strategy, np.int32(3), new, aggregation="sum", when="read")

    with made("mirrored(2)") as t:
        t.step(BATCH)
        assert value(t) == 31
        t.save(path)
    for strategy in ("one_device()", "mirrored(2)", "mirrored(3)", "mirrored(2) * tensor_split(1)"):
        with made(strategy) as t:
            t.load(path)
            assert value(t) == 31 and value(t).dtype == np.int32
            t.step(BATCH)
            assert value(t) == 59


def test_what_each_replica_keeps_is_saved_with_a_dim_of_replicas(tmp_path: Path) -> None:
    path = str(tmp_path / "n.safetensors")

    def made(strategy: str) -> graphc.api.StepTrainer:
        return trainer(strategy, np.float64(0), lambda n, x: n + np.sum(x), when="never")

    with made("mirrored(2)") as t:
        np.testing.assert_array_equal(value(t), [0, 0])
        t.step(BATCH)
        np.testing.assert_array_equal(value(t), SUMS)
        t.save(path)
    with made("mirrored(2)") as t:
        t.load(path)
        np.testing.assert_array_equal(value(t), SUMS)
    with made("mirrored(4)") as t:
        with pytest.raises(
            GraphcError, match="a copy for each of 2 replicas, but this run has 4"
        ) as e:
            t.load(path)
        assert e.value.code == "G0535"
        t.trainer.load({"n": np.float64(5)})
        np.testing.assert_array_equal(value(t), [5, 5, 5, 5])


def test_copies_are_not_written_turn_by_turn() -> None:
    with pytest.raises(GraphcError, match="one of a device's 2 microbatches") as caught:
        trainer(
            "mirrored(2) * accumulate(2)", np.float64(0), lambda n, x: n + np.sum(x),
            aggregation="sum", when="read",
        )  # fmt: skip
    assert caught.value.code == "G0487"


def test_the_check_names_a_variable_on_which_replicas_differ() -> None:
    how = {"aggregation": "only_first_replica"}
    with trainer("mirrored(2)", np.float64(0), lambda n, x: n + np.sum(x), check=True, **how) as t:
        with pytest.raises(GraphcError, match="1 replicas would write another value to 'n'") as e:
            t.step(BATCH)
        assert e.value.code == "G0536"
    with trainer(
        "mirrored(2)", np.float64(0), lambda n, x: n + 0 * np.sum(x) + 1, check=True, **how
    ) as t:
        assert set(t.step(BATCH)) == {"loss"}


def test_batch_statistics_of_replicas_and_of_the_batch() -> None:
    """Local batch norm normalizes by each replica's own statistics, and its states follow the mean."""

    def loss(p: Any, b: Any) -> Any:
        y = graphc.nn.batch_norm(graphc.nn.per_replica(b["x"]), momentum=0.0)
        return np.mean(graphc.nn.join_replicas(y) * p["w"])

    with graphc.compile(
        loss, {"w": W}, BATCH, optimizer=graphc.optim.sgd(0.0), strategy="mirrored(2)"
    ) as t:
        t.step(BATCH)
        after = t.variables("state")
    halves = X[:4], X[4:]
    mean = np.mean([h.mean() for h in halves])
    var = np.mean([h.var() for h in halves])
    assert after["batch_norm.mean"] == pytest.approx(mean)
    assert after["batch_norm.var"] == pytest.approx(var)
    assert var != pytest.approx(X.var())


@pytest.mark.parametrize("devices", [1, 2, 3, 4])
def test_under_a_grid_the_replicas_are_the_leaves(devices: int) -> None:
    strategy = f"mirrored({devices}) * reproducible(4)"
    for how, want in (("sum", X.sum()), ("mean", X.sum() / 4), ("only_first_replica", X[:2].sum())):
        with trainer(strategy, 0.0, lambda n, x: np.sum(x), aggregation=how) as t:
            t.step(BATCH)
            assert t.variables("state")["n"] == pytest.approx(want)


def test_copies_of_leaves_can_not_be_kept() -> None:
    with pytest.raises(GraphcError, match="microbatches") as caught:
        trainer("mirrored(2) * reproducible(4)", 0.0, lambda n, x: n + np.sum(x), aggregation="sum",
                when="read")  # fmt: skip
    assert caught.value.code == "G0487" and "leave reproducible out" in str(caught.value.help)


@pytest.mark.parametrize("strategy", ["mirrored(2)", "mirrored(4)"])
@pytest.mark.parametrize("how", ["sum", "mean", "only_first_replica"])
def test_a_run_that_goes_on_has_every_copy(how: str, strategy: str, tmp_path: Path) -> None:
    def made() -> graphc.api.StepTrainer:
        def new(n: Any, x: Any) -> Any:
            return 0.3 * n + np.mean(x) / 7

        return trainer(strategy, np.float64(0.1), new, aggregation=how, when="read")

    path = tmp_path / "n.safetensors"
    with made() as whole, made() as second:
        whole.step(BATCH)
        whole.trainer.save(path)
        second.trainer.resume(path)
        np.testing.assert_array_equal(
            whole.trainer.engine.copies()["n"], second.trainer.engine.copies()["n"]
        )
        assert len(set(second.trainer.engine.copies()["n"])) > 1
        whole.step(BATCH)
        second.step(BATCH)
        np.testing.assert_array_equal(value(whole), value(second))
