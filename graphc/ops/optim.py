"""Optimizers: frozen, printable records that turn gradients into new values of variables.

An optimizer gives a *move* for each variable; the new value is the old one plus the move. It may
stand in a `chain` with transforms: before it those that change gradients (clipping), after it those
that watch (averages). The maths is done in the parameter's dtype, for f16 and bf16 in f32, which
their slots are kept in; what depends on the step alone is done in f64.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, TypeAlias

from graphc.graph import Builder, Value, Variable
from graphc.op import record, require
from graphc.ops.schedules import Rate, Schedule
from graphc.types import F32, F64, DType, TensorType

Values: TypeAlias = dict[str, Value]
Slots: TypeAlias = dict[str, dict[str, Value]]  # variable -> slot -> value


@dataclass(frozen=True)
class Moment:
    """What an update may look at: the builder, the variables' values, and the time.

    params: at least f32. step: i64, counted from 0. t: f64, counted from 1.
    """

    f: Builder
    params: Values
    step: Value
    t: Value

    def rate(self, rate: Rate) -> float | Value:
        """The rate at this step: a number, or an f64 scalar."""
        return rate(self.f, self.step) if isinstance(rate, Schedule) else rate

    def scale(self, x: Value, by: float | Value) -> Value:
        """`x` times a number or an f64 scalar, in the dtype of x."""
        return x * (self.f.to_dtype(by, x.dtype) if isinstance(by, Value) else by)

    def decays(self, name: str) -> bool:
        """Whether weight decay applies to a variable."""
        return self.f.variables[name].decay


def wide(dtype: DType) -> DType:
    """The dtype in which a parameter's update is computed."""
    return F32 if dtype.bytes == 2 else dtype


class Transform(ABC):
    """Maps a value per variable to another one: gradients before the optimizer, moves after it."""

    slot_names: ClassVar[tuple[str, ...]] = ()
    watches: ClassVar[bool] = False  # stands after the optimizer, and hands the moves on as they are

    def __post_init__(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]
            low, high = _RANGES.get(field.name, (float("-inf"), float("inf")))
            value = getattr(self, field.name)
            good = not isinstance(value, int | float) or low <= value <= high
            text = f"{type(self).__name__.lower()}: {field.name}={value!r} is not in [{low}, {high}]"
            require(good, text, code="G0206")

    def slots(self, param: Variable) -> Mapping[str, tuple[TensorType, float]]:
        """The state kept for a parameter: type and initial fill, by name."""
        t = TensorType(param.type.shape, wide(param.type.dtype))
        return {name: (t, self.fill(name)) for name in self.slot_names}

    def fill(self, slot: str) -> float:
        """What a slot starts from."""
        return 0.0

    @abstractmethod
    def moves(self, at: Moment, given: Values, slots: Slots) -> tuple[Values, Slots]:
        """The moves (or gradients) handed on, and the new slots."""


_RANGES = {
    "b1": (0, 1), "b2": (0, 1), "decay": (0, 1), "momentum": (0, 1), "lr": (0, float("inf")),
    "weight_decay": (0, float("inf")), "max_norm": (0, float("inf")), "limit": (0, float("inf")),
}  # fmt: skip


class Optimizer(Transform):
    """A transform of gradients into moves."""

    def apply(
        self, f: Builder, params: Values, grads: Values, slots: Slots, step: Value
    ) -> tuple[Values, Slots]:
        """New values of the variables and of their slots; step counts updates from 0 (i64)."""
        dtypes = {v: wide(x.dtype) for v, x in params.items()}
        values = {v: f.to_dtype(x, dtypes[v]) for v, x in params.items()}
        at = Moment(f, values, step, f.to_dtype(step, F64) + 1.0)
        given = {v: f.to_dtype(g, dtypes[v]) for v, g in grads.items()}
        moves, new_slots = self.moves(at, given, slots)
        new = {v: f.to_dtype(values[v] + moves[v], x.dtype) for v, x in params.items()}
        return new, new_slots


class Elementwise(Optimizer):
    """An optimizer that treats each variable by itself."""

    def moves(self, at: Moment, given: Values, slots: Slots) -> tuple[Values, Slots]:
        made = {v: self.move(at, v, g, slots[v]) for v, g in given.items()}
        return {v: m for v, (m, _) in made.items()}, {v: s for v, (_, s) in made.items()}

    @abstractmethod
    def move(
        self, at: Moment, name: str, g: Value, slots: dict[str, Value]
    ) -> tuple[Value, dict[str, Value]]:
        """The move of one variable, and its new slots."""


def _decayed(at: Moment, name: str, g: Value, weight_decay: float) -> Value:
    """`g + weight_decay * p`, for a variable that decays."""
    return g + weight_decay * at.params[name] if weight_decay and at.decays(name) else g


def _followed(average: Value, x: Value, decay: float) -> Value:
    """`average` moved towards x: `decay * average + (1 - decay) * x`."""
    return average + (1 - decay) * (x - average)


# -- gradient descent ----------------------------------------------------------------------------


@record
@dataclass(frozen=True)
class Sgd(Elementwise):
    """`m = momentum * m + g; p -= lr * m`; nesterov: `p -= lr * (g + momentum * m)`

    g includes weight_decay * p. Without momentum no slot is kept. (Polyak 1964; Nesterov 1983, in
    the form of Sutskever, Martens, Dahl, Hinton 2013)
    """

    lr: Rate = 1e-2
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def slots(self, param: Variable) -> Mapping[str, tuple[TensorType, float]]:
        t = TensorType(param.type.shape, wide(param.type.dtype))
        return {"momentum": (t, 0.0)} if self.momentum else {}

    def move(
        self, at: Moment, name: str, g: Value, slots: dict[str, Value]
    ) -> tuple[Value, dict[str, Value]]:
        g = _decayed(at, name, g, self.weight_decay)
        if not self.momentum:
            return -at.scale(g, at.rate(self.lr)), {}
        m = self.momentum * slots["momentum"] + g
        direction = g + self.momentum * m if self.nesterov else m
        return -at.scale(direction, at.rate(self.lr)), {"momentum": m}


@record
@dataclass(frozen=True)
class Momentum(Sgd):
    """sgd with a momentum of 0.9: `m = momentum * m + g; p -= lr * m`"""

    momentum: float = 0.9


@record
@dataclass(frozen=True)
class Lion(Elementwise):
    """`p -= lr * (sign(b1 * m + (1 - b1) * g) + weight_decay * p); m = b2 * m + (1 - b2) * g`

    Chen et al., "Symbolic discovery of optimization algorithms", 2023.
    """

    lr: Rate = 1e-4
    b1: float = 0.9
    b2: float = 0.99
    weight_decay: float = 0.0
    slot_names: ClassVar[tuple[str, ...]] = ("m",)

    def move(
        self, at: Moment, name: str, g: Value, slots: dict[str, Value]
    ) -> tuple[Value, dict[str, Value]]:
        m = slots["m"]
        direction = _decayed(at, name, at.f.sign(_followed(m, g, self.b1)), self.weight_decay)
        return -at.scale(direction, at.rate(self.lr)), {"m": _followed(m, g, self.b2)}


# -- scaled by the size of past gradients --------------------------------------------------------


@record
@dataclass(frozen=True)
class Adagrad(Elementwise):
    """`a += g^2; p -= lr * g / (sqrt(a) + eps)`, a from `initial` (Duchi, Hazan, Singer 2011)"""

    lr: Rate = 1e-2
    initial: float = 0.0
    eps: float = 1e-10
    slot_names: ClassVar[tuple[str, ...]] = ("a",)

    def fill(self, slot: str) -> float:
        return self.initial

    def move(
        self, at: Moment, name: str, g: Value, slots: dict[str, Value]
    ) -> tuple[Value, dict[str, Value]]:
        a = slots["a"] + g * g
        return -at.scale(g, at.rate(self.lr)) / (at.f.sqrt(a) + self.eps), {"a": a}


@record
@dataclass(frozen=True)
class Rmsprop(Elementwise):
    """`v = decay * v + (1 - decay) * g^2; d = g / (sqrt(v) + eps); p -= lr * d`

    momentum: `m = momentum * m + d; p -= lr * m`. centered: sqrt(v - (mean of g)^2), as in Graves
    2013. (Hinton, Srivastava, Swersky, lecture 6e, 2012)
    """

    lr: Rate = 1e-2
    decay: float = 0.9
    eps: float = 1e-8
    momentum: float = 0.0
    centered: bool = False

    def slots(self, param: Variable) -> Mapping[str, tuple[TensorType, float]]:
        names = ["v", *["momentum"] * bool(self.momentum), *["mean"] * self.centered]
        t = TensorType(param.type.shape, wide(param.type.dtype))
        return dict.fromkeys(names, (t, 0.0))

    def move(
        self, at: Moment, name: str, g: Value, slots: dict[str, Value]
    ) -> tuple[Value, dict[str, Value]]:
        new = {"v": _followed(slots["v"], g * g, self.decay)}
        spread = new["v"]
        if self.centered:
            new["mean"] = _followed(slots["mean"], g, self.decay)
            spread = at.f.maximum(spread - at.f.square(new["mean"]), 0)
        d = g / (at.f.sqrt(spread) + self.eps)
        if self.momentum:
            d = new["momentum"] = self.momentum * slots["momentum"] + d
        return -at.scale(d, at.rate(self.lr)), new


class AdamLike(Elementwise):
    """Optimizers that follow the mean m of the gradients and the mean v of their squares."""

    lr: Rate
    b1: float
    b2: float
    eps: float
    slot_names: ClassVar[tuple[str, ...]] = ("m", "v")

    def means(self, g: Value, slots: dict[str, Value]) -> dict[str, Value]:
        return {
            "m": _followed(slots["m"], g, self.b1),
            "v": _followed(slots["v"], g * g, self.b2),
        }

    def corrections(self, at: Moment) -> tuple[Value, Value]:
        """What the means still lack after t steps from 0: `1 - b1^t` and `1 - b2^t`."""
        return 1.0 - at.f.power(self.b1, at.t), 1.0 - at.f.power(self.b2, at.t)

    def direction(self, at: Moment, new: dict[str, Value]) -> Value:
        """`m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)`"""
        first, second = self.corrections(at)
        size = at.scale(at.f.sqrt(new["v"]), at.f.rsqrt(second)) + self.eps
        return at.scale(new["m"], 1.0 / first) / size


@record
@dataclass(frozen=True)
class Adam(AdamLike):
    """`p -= lr * m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)`

    with `m = b1 * m + (1 - b1) * g` and `v = b2 * v + (1 - b2) * g^2`. With epsilon_hat it is the
    form of the paper's section 2 (and of Keras): `p -= lr * c * m / (sqrt(v) + eps)`,
    c = sqrt(1 - b2^t) / (1 - b1^t). (Kingma, Ba 2014)
    """

    lr: Rate = 1e-3
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8
    epsilon_hat: bool = False

    def move(
        self, at: Moment, name: str, g: Value, slots: dict[str, Value]
    ) -> tuple[Value, dict[str, Value]]:
        new, rate = self.means(g, slots), at.rate(self.lr)
        if not self.epsilon_hat:
            return -at.scale(self.direction(at, new), rate), new
        first, second = self.corrections(at)
        step = at.scale(new["m"], rate * (at.f.sqrt(second) / first))
        return -step / (at.f.sqrt(new["v"]) + self.eps), new


@record
@dataclass(frozen=True)
class Adamw(AdamLike):
    """adam with decoupled decay: `p -= lr * (adam's direction + weight_decay * p)`

    Loshchilov, Hutter, "Decoupled weight decay regularization", 2017.
    """

    lr: Rate = 1e-3
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 1e-2

    def move(
        self, at: Moment, name: str, g: Value, slots: dict[str, Value]
    ) -> tuple[Value, dict[str, Value]]:
        new = self.means(g, slots)
        direction = _decayed(at, name, self.direction(at, new), self.weight_decay)
        return -at.scale(direction, at.rate(self.lr)), new


@record
@dataclass(frozen=True)
class Lamb(AdamLike):
    """`p -= lr * |p| / |d| * d`, d = adam's direction + weight_decay * p, norms per variable

    The ratio is 1 where a norm is 0. You et al., "Large batch optimization for deep learning:
    training BERT in 76 minutes", 2019.
    """

    lr: Rate = 1e-3
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-6
    weight_decay: float = 0.0

    def move(
        self, at: Moment, name: str, g: Value, slots: dict[str, Value]
    ) -> tuple[Value, dict[str, Value]]:
        new, p = self.means(g, slots), at.params[name]
        d = _decayed(at, name, self.direction(at, new), self.weight_decay)
        ratio = _trust(at.f, at.f.norm(p), at.f.norm(d))
        return -at.scale(ratio * d, at.rate(self.lr)), new


def _trust(f: Builder, p: Value, d: Value) -> Value:
    both = f.and_(f.gt(p, 0), f.gt(d, 0))
    return f.select(both, p / f.where(both, d, 1.0), f.ones_like(p))


# -- transforms ----------------------------------------------------------------------------------


@record
@dataclass(frozen=True)
class ClipByGlobalNorm(Transform):
    """`g *= max_norm / max(|all gradients|, max_norm)` (Pascanu, Mikolov, Bengio 2012)"""

    max_norm: float

    def moves(self, at: Moment, given: Values, slots: Slots) -> tuple[Values, Slots]:
        norm = at.f.global_norm(given.values())
        factor = self.max_norm / at.f.maximum(norm, self.max_norm)
        return {v: at.scale(g, factor) for v, g in given.items()}, {v: {} for v in given}


@record
@dataclass(frozen=True)
class ClipByValue(Transform):
    """`g = min(max(g, -limit), limit)`, entry by entry"""

    limit: float

    def moves(self, at: Moment, given: Values, slots: Slots) -> tuple[Values, Slots]:
        clipped = {v: at.f.clip(g, -self.limit, self.limit) for v, g in given.items()}
        return clipped, {v: {} for v in given}


@record
@dataclass(frozen=True)
class Ema(Transform):
    """`ema = decay * ema + (1 - decay) * p`, the new p; the slot starts from the first p

    The average of weights stands in the slot `ema` (Polyak, Juditsky 1992).
    """

    decay: float = 0.999
    slot_names: ClassVar[tuple[str, ...]] = ("ema",)
    watches = True

    def moves(self, at: Moment, given: Values, slots: Slots) -> tuple[Values, Slots]:
        first = at.f.eq(at.step, 0)
        new: Slots = {}
        for v, move in given.items():
            p = at.params[v]
            average = at.f.where(first, p, slots[v]["ema"])
            new[v] = {"ema": _followed(average, p + move, self.decay)}
        return given, new


@record
@dataclass(frozen=True)
class Chain(Optimizer):
    """Transforms of the gradients, then one optimizer, then what watches, one after the other"""

    members: tuple[Transform, ...]

    def __post_init__(self) -> None:
        kinds = [1 if isinstance(m, Optimizer) else 2 if m.watches else 0 for m in self.members]
        good = kinds == sorted(kinds) and kinds.count(1) == 1
        require(
            good,
            "a chain is clipping, then one optimizer, then averages",
            code="G0206",
            help="such as chain(clip_by_global_norm(1.0), adam(1e-3), ema(0.999))",
        )
        names = [n for m in self.members for n in _slot_names(m)]
        twice = sorted({n for n in names if names.count(n) > 1})
        require(not twice, f"chain: two members keep a slot '{''.join(twice[:1])}'", code="G0206")

    def slots(self, param: Variable) -> Mapping[str, tuple[TensorType, float]]:
        return {k: slot for m in self.members for k, slot in m.slots(param).items()}

    def moves(self, at: Moment, given: Values, slots: Slots) -> tuple[Values, Slots]:
        new: Slots = {v: {} for v in given}
        for member in self.members:
            given, made = member.moves(at, given, slots)
            for v, kept in made.items():
                new[v].update(kept)
        return given, new


_SCALAR = Variable("", TensorType((), F32))


def _slot_names(member: Transform) -> list[str]:
    return list(member.slots(_SCALAR))


def chain(*members: Transform) -> Optimizer:
    """The optimizer that does one member after the other; a lone optimizer is itself."""
    match members:
        case [Optimizer() as lone]:
            return lone
        case _:
            return Chain(members)
