"""Sparse gradients: a table that is only looked up is updated by rows, whatever the strategy."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import optim
from graphc.api import traced_module
from graphc.compiler.driver import compile_module
from graphc.ir.op import Op
from graphc.ir.orders import Order
from graphc.lowering.program.program import Kernel, Program
from graphc.ops.rows import RowAdd, RowSum
from graphc.plan.plan import Plan
from graphc.strategies import parse_strategy
from graphc.support.errors import GraphcError, GraphcWarning

Array = np.ndarray
Batch = dict[str, Array]
SIZE, WIDTH, BATCH, WORDS = 60, 6, 7, 3
STRATEGIES = (
    "one_device()", "mirrored(2)", "mirrored(3) * accumulate(2)", "accumulate(3)",
    "central_storage(2)", "parameter_server(2, 2)", "zero(2, stage=1)", "zero(3, stage=2)",
    "zero(2, stage=3) * accumulate(2)", 'tensor_split(2, {"table": 0})',
    'tensor_split(2, {"table": 1})', 'mirrored(2) * tensor_split(2, {"table": 0})',
    "mirrored(2) * reproducible(7)",
)  # fmt: skip
OPTIMIZERS: dict[str, Any] = {
    "sgd": optim.sgd(0.5),
    "schedule": optim.sgd(optim.cosine_decay(0.5, steps=10)),
    "adagrad": optim.adagrad(0.3),
    "momentum": optim.momentum(0.3),
    "decay": optim.sgd(0.5, weight_decay=0.1),
    "adam": optim.adam(0.1),
    "clipped": [optim.clip_by_global_norm(0.1), optim.sgd(0.5)],
    "cut": [optim.clip_by_value(0.01), optim.adagrad(0.3)],
    "average": [optim.sgd(0.5), optim.ema(0.9)],
    "scaled": [optim.loss_scale(), optim.sgd(0.5)],
    "lazy adam": optim.adam(0.1, lazy=True),
    "lazy adamw": optim.adamw(0.1, weight_decay=0.1, lazy=True),
    "lazy momentum": optim.momentum(0.3, weight_decay=0.1, lazy=True),
    "groups": optim.by_group({"table": optim.adam(0.1, lazy=True), "*": optim.sgd(0.1)}),
}


def params(dtype: Any = np.float32) -> dict[str, Array]:
    rng = np.random.default_rng(1)
    shapes = {"table": (SIZE, WIDTH), "w": (WIDTH, 2)}
    return {k: rng.normal(size=s).astype(dtype) for k, s in shapes.items()}


def batch(n: int = BATCH, seed: int = 0, dtype: Any = np.float32) -> Batch:
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, SIZE // 2, (n, WORDS)).astype(np.int32)
    return {"ids": ids, "y": rng.normal(size=(n, 2)).astype(dtype)}


def loss(p: Any, b: Any) -> Any:
    """The mean of some words' rows, and a weight."""
    words = np.take(p["table"], b["ids"], axis=0)
    return np.mean((np.tanh(words.sum(axis=1) @ p["w"]) - b["y"]) ** 2)


def planned(
    function: Callable[..., Any] = loss, strategy: str = "one_device()", optimizer: Any = None,
    **options: Any,
) -> Plan:  # fmt: skip
    optimizer = OPTIMIZERS["sgd"] if optimizer is None else optimizer
    given = options.pop("params", params())
    module, _ = traced_module(function, given, batch(), optimizer=optimizer, **options)
    return compile_module(module, parse_strategy(strategy))


def kernels(plan: Plan, op: type[Op]) -> list[Kernel]:
    found = plan.training.instructions
    return [x for x in found if isinstance(x, Kernel) and isinstance(x.op, op)]


def is_sparse(plan: Plan) -> bool:
    return bool(kernels(plan, RowSum))


def trained(mode: str, strategy: str, optimizer: Any, backend: str = "numpy") -> Any:
    with graphc.compile(
        loss, params(), batch(), optimizer=optimizer, strategy=strategy, sparse=mode,
        backend=backend,
    ) as made:  # fmt: skip
        for seed, n in enumerate((BATCH, 5, BATCH, 1)):
            made.step(batch(n, seed))
        return made.params


# -- the same as with a table ----------------------------------------------------------------------


LONGER = ("lazy adamw", "lazy momentum", "groups")


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.ci] * (n in LONGER)) for n in OPTIMIZERS]
)
def test_rows_train_as_tables_do(name: str) -> None:
    rows, table = (trained(mode, "one_device()", OPTIMIZERS[name]) for mode in ("on", "off"))
    for k in rows:
        np.testing.assert_allclose(rows[k], table[k], rtol=1e-5, atol=1e-6)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("strategy", STRATEGIES[1:])
@pytest.mark.parametrize(
    "name",
    [
        "sgd",
        "adam",
        "clipped",
        *(pytest.param(x, marks=pytest.mark.ci) for x in ("adagrad", "lazy adam")),
    ],
)
def test_rows_train_alike_under_every_strategy(strategy: str, name: str) -> None:
    rows = trained("on", strategy, OPTIMIZERS[name])
    alone = trained("on", "one_device()", OPTIMIZERS[name], "reference")
    for k in rows:
        np.testing.assert_allclose(rows[k], alone[k], rtol=1e-4, atol=1e-5)


SPARSE_ADAM = np.array([  # torch.optim.SparseAdam(lr=0.1) of PyTorch, in f64
    [1.6610356792970034, -2.172909054075764, 0.31992189803590554],
    [-0.5096567819736272, -0.3945364617651546, -0.15748523894112298],
    [-1.7653362804870971, -0.00803063663991725, -0.588383879607806],
    [3.3229995166448827, 0.22578661322792176, -0.3526307943415954],
    [-0.4221450644678486, -0.5260819764958984, -0.9077572573000354],
    [-0.4546823344947142, 0.4180640368157018, -0.17467226755919185],
])  # fmt: skip


@pytest.mark.parametrize("mode", ["on", "off"])
def test_lazy_adam_is_that_of_pytorch(mode: str) -> None:
    rng = np.random.default_rng(3)
    table = rng.normal(size=(6, 3))
    ids = ([0, 2, 2], [2, 4, 0], [5, 5, 5], [0, 1, 2], [4, 4, 0])
    batches = [{"ids": np.array(i, np.int32), "y": rng.normal(size=(3, 3))} for i in ids]

    def squares(p: Any, b: Any) -> Any:
        return np.sum((np.take(p["table"], b["ids"], axis=0) - b["y"]) ** 2)

    optimizer = optim.adam(0.1, epsilon_hat=True, lazy=True)
    with graphc.compile(
        squares, {"table": table}, batches[0], optimizer=optimizer, sparse=mode
    ) as made:
        for b in batches:
            made.step(b)
        np.testing.assert_allclose(made.params["table"], SPARSE_ADAM, rtol=1e-12)
        assert (made.variables()["table.m"][3] == 0).all()


@pytest.mark.parametrize(
    "name",
    [
        "lazy adam",
        *(pytest.param(n, marks=pytest.mark.ci) for n in ("lazy adamw", "lazy momentum")),
    ],
)
def test_a_lazy_update_leaves_rows_alone_that_are_not_looked_up(name: str) -> None:
    """In a short batch, too, whose missing examples look up row 0 nowhere."""
    with graphc.compile(
        loss, params(), batch(), optimizer=OPTIMIZERS[name], strategy="mirrored(2)", sparse="on"
    ) as made:
        for seed, n in enumerate((BATCH, 3, 1)):
            before, slots = made.params["table"], made.variables("slot")
            given = batch(n, seed)
            given["ids"] = given["ids"] % 9 + 1
            made.step(given)
            seen = np.isin(np.arange(SIZE), given["ids"])
            assert ((made.params["table"] != before).any(axis=1) == seen).all()
            for slot, now in made.variables("slot").items():
                if slot.startswith("table."):
                    assert (now[~seen] == slots[slot][~seen]).all()


def test_the_rows_are_the_slope_of_the_loss() -> None:
    p, b = params(np.float64), batch(dtype=np.float64)
    with graphc.compile(loss, p, b, optimizer=optim.sgd(1.0), sparse="on") as made:
        made.step(b)
        gradient = p["table"] - made.params["table"]
    slope = np.zeros_like(gradient)
    for at in np.ndindex(*slope.shape):
        moved = {k: v.copy() for k, v in p.items()}
        moved["table"][at] += 1e-6
        slope[at] = (loss(moved, b) - loss(p, b)) / 1e-6
    np.testing.assert_allclose(gradient, slope, atol=1e-5)


# -- no table is made ------------------------------------------------------------------------------


def tables(program: Program) -> list[str]:
    """The buffers that are as large as the table, or a device's part of it."""
    t = program.variable_types["table"]
    part = program.buffers[program.variables["table"]].shape
    return [
        b.name for b in program.buffers
        if b.kind != "view" and (b.shape_global[-2:] == t.shape or b.shape[-2:] == part)
    ]  # fmt: skip


@pytest.mark.parametrize(
    "strategy", [s for s in STRATEGIES if "stage=3" not in s and "server" not in s]
)
def test_descent_makes_no_table_but_the_variable(strategy: str) -> None:
    plan = planned(strategy=strategy, sparse="on")
    held = {"table"} | ({"table.data"} if "central" in strategy else set())
    assert set(tables(plan.training)) <= held
    (update,) = kernels(plan, RowAdd)
    assert plan.training.variables["table"] == update.result == update.operands[0]


def test_descent_on_tables_makes_one() -> None:
    assert len(tables(planned(sparse="off").training)) > 1


def test_adagrad_makes_no_table_but_its_slot() -> None:
    plan = planned(optimizer=OPTIMIZERS["adagrad"], sparse="on")
    assert sorted(tables(plan.training)) == ["table", "table.a"]


@pytest.mark.parametrize("order", [*map(str, Order)])
def test_rows_stay_rows_under_every_order(order: str) -> None:
    def twice(p: Any, b: Any) -> Any:
        here, there = (np.take(p["table"], b["ids"][:, i], axis=0) for i in (0, 1))
        return np.mean((np.tanh((here * there) @ p["w"]) - b["y"]) ** 2)

    plan = planned(twice, "mirrored(2) * accumulate(2)", order=order, sparse="on")
    assert tables(plan.training) == ["table"]
    (made,) = kernels(plan, RowSum)
    assert made.op == RowSum(SIZE, Order.TREE if order == "tree" else Order.ACCUMULATE)


# -- traffic ---------------------------------------------------------------------------------------


def test_devices_send_rows_and_indices() -> None:
    def few(p: Any, b: Any) -> Any:
        words = np.take(p["table"], b["ids"], axis=0)
        return np.mean((np.tanh((words * words).sum(axis=1) @ p["w"]) - b["y"]) ** 2)

    sent = {m: planned(few, "mirrored(2)", sparse=m).sent_bytes for m in ("on", "off")}
    looked_up = (BATCH + 1) * WORDS  # two parts of one length, as everywhere in plans
    rows, table = looked_up * (WIDTH + 1) * 4 // 2, SIZE * WIDTH * 4
    assert sent["on"] - rows == pytest.approx(sent["off"] - table, abs=8)


def test_servers_that_do_not_wait_get_rows_and_indices() -> None:
    for optimizer in ("sgd", "adagrad", "adam"):
        plan = planned(
            strategy="parameter_server(2, 1, staleness=1)", optimizer=OPTIMIZERS[optimizer],
            sparse="on",
        )  # fmt: skip
        (server,) = plan.servers
        shapes = {name: t.shape for name, t in server.inputs.items()}
        assert shapes["gradient/table"] == (BATCH, WORDS, WIDTH)
        assert (SIZE, WIDTH) not in shapes.values()


# -- when ------------------------------------------------------------------------------------------


def test_auto_keeps_rows_where_fewer_are_looked_up_than_there_are() -> None:
    small = params() | {"table": np.ones((BATCH * WORDS, WIDTH), np.float32)}
    large = params() | {"table": np.ones((BATCH * WORDS + 1, WIDTH), np.float32)}
    assert not is_sparse(planned(params=small))
    assert is_sparse(planned(params=large))
    assert is_sparse(planned(params=small, sparse="on"))
    assert not is_sparse(planned(params=large, sparse="off"))


def test_what_a_variable_says_comes_first() -> None:
    def tree(mode: str) -> dict[str, Any]:
        return params() | {"table": graphc.param(params()["table"], sparse=mode)}

    assert not is_sparse(planned(params=tree("off"), sparse="on"))
    assert is_sparse(planned(params=tree("on"), sparse="off"))


def tied(p: Any, b: Any) -> Any:
    words = np.take(p["table"], b["ids"], axis=0).sum(axis=1)
    scores = np.tanh(words @ p["table"].T)
    return np.mean((scores[:, :2] - b["y"]) ** 2) + 0.0 * np.sum(p["w"])


def test_a_table_that_is_used_as_a_whole_too_has_a_table_as_gradient_with_both_lines() -> None:
    first = tied.__code__.co_firstlineno
    with pytest.warns(GraphcWarning, match="G0314") as caught:
        plan = planned(tied)
    text = str(caught[0].message)
    assert "'table' is looked up and also used as a whole: its gradient is a dense table" in text
    assert f"test_sparse.py:{first + 2}" in text and f"test_sparse.py:{first + 1}" in text
    assert not is_sparse(plan)


@pytest.fixture
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.usefixtures("no_warnings")
def test_where_a_table_is_meant_nothing_is_said() -> None:
    assert not is_sparse(planned(tied, sparse="off"))


def test_what_is_not_looked_up_by_example_is_not_sparse() -> None:
    def across(p: Any, b: Any) -> Any:
        words = np.take(p["table"], b["ids"].T, axis=0)
        return np.mean((np.tanh(words.sum(axis=0) @ p["w"]) - b["y"]) ** 2)

    assert not is_sparse(planned(across, sparse="on"))
    given = params() | {"table": graphc.param(params()["table"], sparse="on")}
    with pytest.raises(GraphcError, match="sparse is on for 'table', but no lookup of its rows"):
        planned(across, params=given)


def test_a_word_that_is_no_choice_is_an_error() -> None:
    with pytest.raises(GraphcError, match="sparse is not 'yes'") as caught:
        planned(sparse="yes")
    assert caught.value.code == "G0313"


# -- contributions of several kinds ----------------------------------------------------------------


def test_lookups_of_different_examples_are_joined_too() -> None:
    def both(p: Any, b: Any) -> Any:
        words = np.take(p["table"], b["ids"], axis=0).sum(axis=1)
        some = np.take(p["table"], np.arange(4, dtype=np.int32), axis=0)
        return np.mean((np.tanh(words @ p["w"]) - b["y"]) ** 2) + np.sum(some**2) * 0.1

    found = []
    for mode in ("on", "off"):
        with graphc.compile(
            both, params(), batch(), optimizer=optim.sgd(0.5), sparse=mode, strategy="mirrored(2)"
        ) as made:
            for seed, n in enumerate((BATCH, 4)):
                made.step(batch(n, seed))
            found.append(made.params["table"])
    np.testing.assert_allclose(*found, atol=1e-6)


def test_an_index_out_of_range_changes_nothing() -> None:
    with graphc.compile(loss, params(), batch(), optimizer=optim.sgd(0.5), sparse="on") as made:
        bad = batch()
        bad["ids"][0, 0] = SIZE
        with pytest.raises(GraphcError, match=f"index {SIZE} is out of range"):
            made.step(bad)
        np.testing.assert_array_equal(made.params["table"], params()["table"])
