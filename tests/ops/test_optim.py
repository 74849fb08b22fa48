"""Every optimizer against a plain NumPy transcription of its paper, for five steps in f64."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from graphc import optim
from graphc.ir.builder import Builder, Value
from graphc.ir.graph import Variable
from graphc.ir.op import record_named, snake
from graphc.ir.types import BF16, F16, F32, F64, I64, DType, TensorType
from graphc.ops.optimizers.optimizer import Chain, Optimizer, Transform, as_optimizer
from graphc.ops.source import Input
from graphc.support.errors import GraphcError
from graphc.testing.compute import evaluate

Array = np.ndarray
State = dict[str, Any]
START = {"w": np.array([[1.0, -2.0], [0.5, 3.0]]), "b": np.array([0.0, 4.0])}
TARGET = {"w": np.array([[0.0, 1.0], [2.0, -1.0]]), "b": np.array([1.0, 1.0])}
SCALE = {"w": np.array([[1.0, 0.1], [2.0, 0.0]]), "b": np.array([0.5, 3.0])}


def gradient(name: str, p: Array) -> Array:
    """That of a quadratic with its minimum at TARGET."""
    return np.asarray(SCALE[name] * (p - TARGET[name]))


class Trial:
    """An optimizer's update as a graph, run step by step on the quadratic."""

    def __init__(self, optimizer: Optimizer, dtype: DType = F64, decay: bool = True) -> None:
        self.f = f = Builder("update")
        types = {v: TensorType(p.shape, dtype) for v, p in START.items()}
        for v, t in types.items():
            f.variables[v] = Variable(v, t, decay=decay)
        params = {v: f.add(Input(v), type=t) for v, t in types.items()}
        grads = {v: f.add(Input(f"{v}.grad"), type=t) for v, t in types.items()}
        step = f.add(Input("step"), type=TensorType((), I64))
        self.slots: dict[str, Array] = {}
        slots = {v: self._slots(optimizer, f.variables[v]) for v in START}
        new, new_slots = optimizer.apply(f, params, grads, slots, step)
        self.ends = {**new, **{f"{v}.{s}": x for v, d in new_slots.items() for s, x in d.items()}}
        self.params = {v: p.astype(dtype.numpy) for v, p in START.items()}
        self.graph, self.step = f.build(), 0

    def _slots(self, optimizer: Optimizer, variable: Variable) -> dict[str, Value]:
        made = {}
        for slot, (t, fill) in optimizer.slots(variable).items():
            name = f"{variable.name}.{slot}"
            self.slots[name] = np.full(t.shape, fill, t.dtype.numpy)
            made[slot] = self.f.add(Input(name), type=t)
        return made

    def run(self, steps: int) -> None:
        for _ in range(steps):
            grads = {
                f"{v}.grad": gradient(v, p.astype(np.float64)).astype(p.dtype)
                for v, p in self.params.items()
            }
            feeds = {**self.params, **self.slots, **grads, "step": np.array(self.step)}
            values = evaluate(self.graph, feeds)
            ends = {name: values[x.name] for name, x in self.ends.items()}
            for name, before in (*self.params.items(), *self.slots.items()):
                assert (ends[name].dtype, ends[name].shape) == (before.dtype, before.shape)
            self.params = {v: ends[v] for v in self.params}
            self.slots = {s: ends[s] for s in self.slots}
            self.step += 1


# -- transcriptions: (p, g, t from 1, state) -> new p ----------------------------------------------

Rule = Callable[[Array, Array, int, State], Array]


def sgd(p: Array, g: Array, t: int, s: State) -> Array:
    return np.asarray(p - 0.1 * g)


def sgd_decayed(p: Array, g: Array, t: int, s: State) -> Array:
    return np.asarray(p - 0.1 * (g + 0.01 * p))


def momentum(p: Array, g: Array, t: int, s: State) -> Array:
    s["m"] = 0.9 * s.get("m", 0) + g
    return np.asarray(p - 0.1 * s["m"])


def nesterov(p: Array, g: Array, t: int, s: State) -> Array:
    s["m"] = 0.9 * s.get("m", 0) + g
    return np.asarray(p - 0.1 * (g + 0.9 * s["m"]))


def adagrad(p: Array, g: Array, t: int, s: State) -> Array:
    s["a"] = s.get("a", 0.1) + g * g
    return np.asarray(p - 0.1 * g / (np.sqrt(s["a"]) + 1e-10))


def rmsprop(p: Array, g: Array, t: int, s: State) -> Array:
    s["v"] = 0.9 * s.get("v", 0) + 0.1 * g * g
    return np.asarray(p - 0.1 * g / (np.sqrt(s["v"]) + 1e-8))


def rmsprop_centered(p: Array, g: Array, t: int, s: State) -> Array:
    s["v"] = 0.9 * s.get("v", 0) + 0.1 * g * g
    s["g"] = 0.9 * s.get("g", 0) + 0.1 * g
    s["m"] = 0.5 * s.get("m", 0) + g / (np.sqrt(np.maximum(s["v"] - s["g"] ** 2, 0)) + 1e-4)
    return np.asarray(p - 0.1 * s["m"])


def means(g: Array, s: State) -> tuple[Array, Array]:
    s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
    s["v"] = 0.999 * s.get("v", 0) + 0.001 * g * g
    return s["m"], s["v"]


def adam(p: Array, g: Array, t: int, s: State) -> Array:
    m, v = means(g, s)
    return np.asarray(p - 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8))


def adam_keras(p: Array, g: Array, t: int, s: State) -> Array:
    m, v = means(g, s)
    rate = 0.1 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
    return np.asarray(p - rate * m / (np.sqrt(v) + 1e-7))


def adamw(p: Array, g: Array, t: int, s: State) -> Array:
    m, v = means(g, s)
    direction = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return np.asarray(p - 0.1 * (direction + 0.01 * p))


def lamb(p: Array, g: Array, t: int, s: State) -> Array:
    m, v = means(g, s)
    d = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-6) + 0.01 * p
    size, length = np.linalg.norm(p), np.linalg.norm(d)
    ratio = size / length if size > 0 and length > 0 else 1.0
    return np.asarray(p - 0.1 * ratio * d)


def lion(p: Array, g: Array, t: int, s: State) -> Array:
    m = s.get("m", np.zeros_like(p))
    s["m"] = 0.99 * m + 0.01 * g
    return np.asarray(p - 0.1 * (np.sign(0.9 * m + 0.1 * g) + 0.01 * p))


def cosine(p: Array, g: Array, t: int, s: State) -> Array:
    return np.asarray(p - 0.05 * (1 + np.cos(np.pi * min(t - 1, 4) / 4)) * g)


def clipped(p: Array, g: Array, t: int, s: State) -> Array:
    return np.asarray(p - 0.1 * np.clip(g, -0.5, 0.5))


TABLE: list[tuple[Optimizer, Rule]] = [
    (optim.sgd(0.1), sgd),
    (optim.sgd(0.1, weight_decay=0.01), sgd_decayed),
    (optim.sgd(0.1, momentum=0.9), momentum),
    (optim.sgd(0.1, momentum=0.9, nesterov=True), nesterov),
    (optim.momentum(0.1), momentum),
    (optim.nesterov(0.1), nesterov),
    (optim.adagrad(0.1, initial=0.1), adagrad),
    (optim.rmsprop(0.1), rmsprop),
    (optim.rmsprop(0.1, eps=1e-4, momentum=0.5, centered=True), rmsprop_centered),
    (optim.adam(0.1), adam),
    (optim.adam(0.1, eps=1e-7, epsilon_hat=True), adam_keras),
    (optim.adamw(0.1), adamw),
    (optim.lamb(0.1, weight_decay=0.01), lamb),
    (optim.lion(0.1, weight_decay=0.01), lion),
    (optim.sgd(optim.cosine_decay(0.1, 4)), cosine),
    (optim.chain(optim.clip_by_value(0.5), optim.sgd(0.1)), clipped),
    (optim.by_group({"?": optim.sgd(0.1)}), sgd),
]


@pytest.mark.parametrize("optimizer, rule", TABLE, ids=lambda v: getattr(v, "__name__", repr(v)))
def test_five_steps_follow_the_transcription(optimizer: Optimizer, rule: Rule) -> None:
    trial = Trial(optimizer)
    trial.run(5)
    for v, p in START.items():
        state: State = {}
        for t in range(1, 6):
            p = rule(p, gradient(v, p), t, state)
        np.testing.assert_allclose(trial.params[v], p, rtol=1e-12, atol=1e-12)


def test_every_optimizer_is_in_the_table() -> None:
    tried = {type(o) for o, _ in TABLE}
    concrete = {c for c in map(record_named, optim.__all__) if c and issubclass(c, Optimizer)}
    assert concrete <= tried


@pytest.mark.parametrize("optimizer", [o for o, _ in TABLE], ids=repr)
@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
def test_half_precision_is_updated_in_f32(optimizer: Optimizer, dtype: DType) -> None:
    trial, exact = Trial(optimizer, dtype), Trial(optimizer)
    assert {s.dtype for s in trial.slots.values()} <= {np.dtype(np.float32)}
    trial.run(3)
    exact.run(3)
    near = {F32: 1e-5, F16: 1e-2, BF16: 1e-1}[dtype]
    for v in START:
        got = trial.params[v].astype(np.float64)
        np.testing.assert_allclose(got, exact.params[v], rtol=near, atol=near)


DECAYING = [
    optim.sgd(0.1, weight_decay=0.5),
    optim.adamw(0.1, weight_decay=0.5),
    optim.lamb(0.1, weight_decay=0.5),
    optim.lion(0.1, weight_decay=0.5),
]


@pytest.mark.parametrize("optimizer", DECAYING, ids=repr)
def test_a_variable_without_decay_is_not_decayed(optimizer: Any) -> None:
    spared, plain = Trial(optimizer, decay=False), Trial(replace(optimizer, weight_decay=0.0))
    decayed = Trial(optimizer)
    for trial in (spared, plain, decayed):
        trial.run(3)
    for v in START:
        np.testing.assert_array_equal(spared.params[v], plain.params[v])
        assert not np.allclose(spared.params[v], decayed.params[v])


def test_clipping_by_global_norm_scales_all_gradients_by_one_factor() -> None:
    grads = {v: gradient(v, p) for v, p in START.items()}
    norm = np.sqrt(sum((g * g).sum() for g in grads.values()))
    trial = Trial(optim.chain(optim.clip_by_global_norm(2.0), optim.sgd(1.0)))
    trial.run(1)
    for v, p in START.items():
        np.testing.assert_allclose(trial.params[v], p - grads[v] * 2 / norm, atol=1e-12)


def test_small_gradients_are_not_clipped() -> None:
    trial, free = (
        Trial(optim.chain(optim.clip_by_global_norm(1e3), optim.sgd(0.1))),
        Trial(optim.sgd(0.1)),
    )
    trial.run(2)
    free.run(2)
    for v in START:
        np.testing.assert_array_equal(trial.params[v], free.params[v])


def test_ema_starts_from_the_first_weights_and_follows_the_new_ones() -> None:
    trial = Trial(optim.chain(optim.sgd(0.1), optim.ema(0.75)))
    average = {v: p.copy() for v, p in START.items()}
    for _ in range(4):
        trial.run(1)
        for v in START:
            average[v] = 0.75 * average[v] + 0.25 * trial.params[v]
            np.testing.assert_allclose(trial.slots[f"{v}.ema"], average[v], atol=1e-12)


# -- schedules -----------------------------------------------------------------------------------


def np_warm(t: int) -> float:
    return min((t + 1) / 4, 1) * 0.5 if t < 4 else 0.5 * 0.5 ** ((t - 4) / 2)


SCHEDULES: list[tuple[Any, Callable[[int], float]]] = [
    (optim.constant_rate(0.3), lambda t: 0.3),
    (optim.linear_warmup(0.5, 4), lambda t: 0.5 * min((t + 1) / 4, 1)),
    (optim.linear_warmup(0.5, 4, optim.exponential_decay(0.5, 0.5, 2)), np_warm),
    (optim.linear_warmup(0.5, 4, 0.1), lambda t: 0.5 * (t + 1) / 4 if t < 4 else 0.1),
    (optim.cosine_decay(1.0, 5, 0.2), lambda t: 0.2 + 0.4 * (1 + np.cos(np.pi * min(t, 5) / 5))),
    (optim.exponential_decay(1.0, 0.5, 2), lambda t: 0.5 ** (t / 2)),
    (optim.exponential_decay(1.0, 0.5, 2, staircase=True), lambda t: 0.5 ** (t // 2)),
    (optim.polynomial_decay(1.0, 4, 0.5), lambda t: 0.5 + 0.5 * (1 - min(t, 4) / 4)),
    (optim.polynomial_decay(1.0, 4, 0.0, 2.0), lambda t: (1 - min(t, 4) / 4) ** 2),
    (optim.piecewise_constant((2, 5), (4.0, 2.0, 1.0)), lambda t: 4.0 / 2 ** ((t >= 2) + (t >= 5))),
]  # fmt: skip


@pytest.mark.parametrize(
    "schedule, formula", SCHEDULES, ids=[f"{i}-{s}"[:40] for i, (s, _) in enumerate(SCHEDULES)]
)
def test_schedule_is_its_formula(schedule: Any, formula: Callable[[int], float]) -> None:
    f = Builder()
    step = f.add(Input("step"), type=TensorType((), I64))
    rate = schedule.in_graph(f, step)
    assert (rate.shape, rate.dtype) == ((), F64)
    graph = f.build()
    for t in range(9):
        values = evaluate(graph, {"step": np.array(t)})
        np.testing.assert_allclose(values[rate.name], formula(t), rtol=1e-12)
        np.testing.assert_allclose(schedule(t), formula(t), rtol=1e-12)
    assert type(schedule(3)) is float
    np.testing.assert_allclose(schedule(np.arange(9)), [formula(t) for t in range(9)], rtol=1e-12)


ONE_CYCLE = (  # OneCycleLR(0.5, total_steps=10) of PyTorch
    0.020000000000000018, 0.26, 0.5, 0.47524231600673683, 0.40587282697488153, 0.30563101096814466,
    0.19437098903185537, 0.09412917302511849, 0.024759683993263143, 2e-06,
)  # fmt: skip
RESTARTS = (  # CosineAnnealingWarmRestarts(2, T_mult=2, eta_min=0.1) of PyTorch
    0.5, 0.30000000000000004, 0.5, 0.4414213562373095, 0.30000000000000004, 0.1585786437626905,
    0.5, 0.4847759065022573, 0.4414213562373095, 0.37653668647301797, 0.30000000000000004,
    0.22346331352698207, 0.1585786437626905, 0.11522409349774265, 0.5,
)  # fmt: skip


@pytest.mark.parametrize(
    "schedule, rates",
    [
        (optim.one_cycle(0.5, 10), ONE_CYCLE),
        (optim.cosine_restarts(0.5, 2, 2, final=0.1), RESTARTS),
        (optim.cosine_restarts(0.5, 3, final=0.1), (0.5, 0.4, 0.2) * 4),
    ],
)
def test_schedule_is_that_of_pytorch(schedule: Any, rates: tuple[float, ...]) -> None:
    f = Builder()
    step = f.add(Input("step"), type=TensorType((), I64))
    rate = schedule.in_graph(f, step)
    graph = f.build()
    for t, want in enumerate(rates):
        values = evaluate(graph, {"step": np.array(t)})
        assert values[rate.name] == pytest.approx(want, rel=1e-9)
        assert schedule(t) == pytest.approx(want, rel=1e-9)


@pytest.mark.parametrize("first, factor", [(10, 2), (7, 3)])
def test_a_period_begins_where_the_one_before_it_ends(first: int, factor: int) -> None:
    schedule = optim.cosine_restarts(1.0, first, factor)
    for k in range(1, 17):
        start = first * (factor**k - 1) // (factor - 1)
        assert schedule(start) == pytest.approx(1.0)
        assert schedule(start - 1) < 0.1 or start < 40


# -- records and errors --------------------------------------------------------------------------


def test_names_are_those_of_the_records() -> None:
    for name in {n for n in optim.__all__ if n.islower()} - {"chain"}:
        cls: type = getattr(optim, name)
        assert record_named(name) is cls
        assert snake(cls.__name__) == name


def test_optimizers_are_equal_by_value_and_print_their_fields() -> None:
    assert optim.adam(1e-3) == optim.adam() and hash(optim.adam(1e-3)) == hash(optim.adam())
    assert (
        repr(optim.sgd(0.5))
        == "Sgd(lr=0.5, momentum=0.0, nesterov=False, weight_decay=0.0, no_decay=(), lazy=False)"
    )


def test_a_chain_of_one_optimizer_is_that_optimizer() -> None:
    assert as_optimizer([optim.adam()]) == optim.adam()
    both = optim.chain(optim.clip_by_value(1.0), optim.adam())
    assert both == Chain((optim.clip_by_value(1.0), optim.adam()))


BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: optim.chain(optim.clip_by_value(1.0)), "clipping, then one optimizer, then averages"),
    (lambda: optim.chain(optim.adam(), optim.clip_by_value(1.0)), "clipping, then one optimizer"),
    (lambda: optim.chain(optim.adam(), optim.sgd()), "one optimizer"),
    (lambda: optim.chain(optim.ema(), optim.adam()), "one optimizer"),
    (lambda: optim.chain(optim.adam(), optim.ema(), optim.ema()), "two members keep a slot 'ema'"),
    (lambda: as_optimizer([3]), "3 is not an optimizer"),
    (lambda: optim.adam(b1=1.5), r"adam: b1=1.5 is not in \[0, 1\]"),
    (lambda: optim.sgd(-0.1), r"sgd: lr=-0.1 is not in"),
    (lambda: optim.clip_by_global_norm(-1.0), "clip_by_global_norm: max_norm=-1.0 is not in"),
    (lambda: optim.cosine_decay(0.1, 0), "cosine_decay: 0 steps"),
    (lambda: optim.piecewise_constant((2,), (1.0,)), "one more rate than boundaries"),
    (lambda: optim.piecewise_constant((3, 2), (1.0, 2.0, 3.0)), "rising boundaries"),
]


@pytest.mark.parametrize("make, message", BAD)
def test_bad_settings_are_an_error(make: Callable[[], object], message: str) -> None:
    with pytest.raises(GraphcError, match=message):
        make()


def test_every_transform_says_its_formula() -> None:
    for name in optim.__all__:
        cls = record_named(name)
        if cls is not None and issubclass(cls, Transform):
            assert (cls.__doc__ or "").startswith(("`", "adam", "Transforms")), name
