"""The optimizers: gradient descent with momentum, and methods that scale by past gradients.

Formulas write g for the gradient, p for the param, t for the number of updates, counted from 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from graphc.ir.builder import Builder, Value
from graphc.ir.graph import Variable
from graphc.ir.op import record
from graphc.ir.types import TensorType
from graphc.ops.optimizers.optimizer import Moment, PerVariable, wide
from graphc.ops.optimizers.schedules import Rate
from graphc.ops.sparse import Rows

Slots: TypeAlias = dict[str, Value]  # of one variable
Moved: TypeAlias = tuple[Value, Slots]


def _decayed(at: Moment, name: str, g: Value, weight_decay: float) -> Value:
    """`g + weight_decay * p`, for a variable that decays."""
    return g + weight_decay * at.params[name] if weight_decay and at.decays(name) else g


def _followed(average: Value, x: Value, decay: float) -> Value:
    """`average` moved towards x: `decay * average + (1 - decay) * x`."""
    return average + (1 - decay) * (x - average)


# -- gradient descent ----------------------------------------------------------------------------


class Descent(PerVariable):
    """Gradient descent, with or without momentum."""

    lr: Rate
    momentum: float
    nesterov: bool
    weight_decay: float

    def slots(self, param: Variable) -> Mapping[str, tuple[TensorType, float]]:
        t = TensorType(param.type.shape, wide(param.type.dtype))
        return {"momentum": (t, 0.0)} if self.momentum else {}

    def move(self, at: Moment, name: str, g: Value, slots: Slots) -> Moved:
        g = _decayed(at, name, g, self.weight_decay)
        if not self.momentum:
            return -at.scale(g, at.rate(self.lr)), {}
        m = self.momentum * slots["momentum"] + g
        direction = g + self.momentum * m if self.nesterov else m
        return -at.scale(direction, at.rate(self.lr)), {"momentum": m}

    def takes_rows(self, at: Moment, name: str) -> bool:
        return not self.momentum and not (self.weight_decay and at.decays(name))

    def move_rows(self, at: Moment, name: str, g: Rows, slots: Slots) -> tuple[Rows, Slots]:
        rate = at.rate(self.lr)
        return -g.map(lambda x: at.scale(x, rate)), {}


@record
@dataclass(frozen=True)
class Sgd(Descent):
    """`p -= lr * g`; with momentum `m = momentum * m + g; p -= lr * m`

    nesterov: `p -= lr * (g + momentum * m)`. g includes weight_decay * p. (Polyak 1964; Nesterov
    1983, in the form of Sutskever, Martens, Dahl, Hinton 2013)
    """

    lr: Rate = 1e-2
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0


@record
@dataclass(frozen=True)
class Momentum(Descent):
    """`m = momentum * m + g; p -= lr * m`: sgd with a momentum of 0.9"""

    lr: Rate = 1e-2
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0


@record
@dataclass(frozen=True)
class Nesterov(Descent):
    """`m = momentum * m + g; p -= lr * (g + momentum * m)`: sgd with nesterov=true"""

    lr: Rate = 1e-2
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 0.0


@record
@dataclass(frozen=True)
class Lion(PerVariable):
    """`p -= lr * (sign(b1 * m + (1 - b1) * g) + weight_decay * p); m = b2 * m + (1 - b2) * g`

    Chen et al., "Symbolic discovery of optimization algorithms", 2023.
    """

    lr: Rate = 1e-4
    b1: float = 0.9
    b2: float = 0.99
    weight_decay: float = 0.0
    slot_names: ClassVar[tuple[str, ...]] = ("m",)

    def move(self, at: Moment, name: str, g: Value, slots: Slots) -> Moved:
        m = slots["m"]
        direction = _decayed(at, name, at.f.sign(_followed(m, g, self.b1)), self.weight_decay)
        return -at.scale(direction, at.rate(self.lr)), {"m": _followed(m, g, self.b2)}


# -- scaled by the size of past gradients --------------------------------------------------------


@record
@dataclass(frozen=True)
class Adagrad(PerVariable):
    """`a += g^2; p -= lr * g / (sqrt(a) + eps)`, a from `initial` (Duchi, Hazan, Singer 2011)"""

    lr: Rate = 1e-2
    initial: float = 0.0
    eps: float = 1e-10
    slot_names: ClassVar[tuple[str, ...]] = ("a",)

    def fill(self, slot: str) -> float:
        return self.initial

    def move(self, at: Moment, name: str, g: Value, slots: Slots) -> Moved:
        a = slots["a"] + g * g
        return self._step(at, g, a), {"a": a}

    def _step(self, at: Moment, g: Value, a: Value) -> Value:
        return -at.scale(g, at.rate(self.lr)) / (at.f.sqrt(a) + self.eps)

    def takes_rows(self, at: Moment, name: str) -> bool:
        return True

    def move_rows(self, at: Moment, name: str, g: Rows, slots: Slots) -> tuple[Rows, Slots]:
        squares = g.map(lambda x: x * x)
        new = g.of(slots["a"]) + squares.values  # at the first row of each index, the new a
        return g.map(lambda x: self._step(at, x, new)), {"a": squares.added_to(slots["a"])}


@record
@dataclass(frozen=True)
class Rmsprop(PerVariable):
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

    def move(self, at: Moment, name: str, g: Value, slots: Slots) -> Moved:
        new = {"v": _followed(slots["v"], g * g, self.decay)}
        spread = new["v"]
        if self.centered:
            new["mean"] = _followed(slots["mean"], g, self.decay)
            spread = at.f.maximum(spread - at.f.square(new["mean"]), 0)
        d = g / (at.f.sqrt(spread) + self.eps)
        if self.momentum:
            d = new["momentum"] = self.momentum * slots["momentum"] + d
        return -at.scale(d, at.rate(self.lr)), new


class AdamLike(PerVariable):
    """Optimizers with a running mean m of the gradients and v of their squares."""

    lr: Rate
    b1: float
    b2: float
    eps: float
    slot_names: ClassVar[tuple[str, ...]] = ("m", "v")

    def means(self, g: Value, slots: Slots) -> Slots:
        return {
            "m": _followed(slots["m"], g, self.b1),
            "v": _followed(slots["v"], g * g, self.b2),
        }

    def corrections(self, at: Moment) -> tuple[Value, Value]:
        """The bias corrections of the means after t steps: `1 - b1^t` and `1 - b2^t`."""
        return 1.0 - at.f.power(self.b1, at.t), 1.0 - at.f.power(self.b2, at.t)

    def direction(self, at: Moment, new: Slots) -> Value:
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

    def move(self, at: Moment, name: str, g: Value, slots: Slots) -> Moved:
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

    def move(self, at: Moment, name: str, g: Value, slots: Slots) -> Moved:
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

    def move(self, at: Moment, name: str, g: Value, slots: Slots) -> Moved:
        new, p = self.means(g, slots), at.params[name]
        d = _decayed(at, name, self.direction(at, new), self.weight_decay)
        ratio = _trust(at.f, at.f.norm(p), at.f.norm(d))
        return -at.scale(ratio * d, at.rate(self.lr)), new


def _trust(f: Builder, p: Value, d: Value) -> Value:
    both = f.and_(f.gt(p, 0), f.gt(d, 0))
    return f.select(both, p / f.where(both, d, 1.0), f.ones_like(p))
