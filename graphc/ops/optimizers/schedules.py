"""Schedules: frozen records, called with the number of updates made so far.

    graphc.optim.cosine_decay(1e-3, steps=1000)(250)   # 0.000853...: a number, to plot or to log

A plain number is the constant schedule. All rates are computed in f64, as scalars. What an
optimizer takes as a `Rate` may also be a hyperparameter, or a value of the step that is traced.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields
from math import log, pi
from typing import Any, TypeAlias

import numpy as np

from graphc.ir.builder import Builder, Value
from graphc.ir.op import record, require, snake
from graphc.ir.types import F64
from graphc.ir.value import InGraph
from graphc.support.dataclass import dataclass
from graphc.support.errors import GraphcError


class Schedule(ABC):
    """`schedule(step)` is the rate at a step, counted from 0."""

    def __post_init__(self) -> None:
        check_numbers(self)
        steps = getattr(self, "steps", 1)
        require(steps >= 1, f"{snake(type(self).__name__)}: {steps} steps", code="G0206")

    @abstractmethod
    def at(self, f: Builder, t: Value) -> Value:
        """The rate at step t, both f64 scalars."""

    def in_graph(self, f: Builder, step: Value) -> Value:
        """The rate, an f64 scalar; step is an integer scalar."""
        return self.at(f, f.to_dtype(step, F64))

    def __mul__(self, by: float | Schedule) -> Schedule:
        """The schedule times a number, or another one."""
        return RateProduct(self, by) if isinstance(by, int | float | Schedule) else NotImplemented

    __rmul__ = __mul__

    def __call__(self, step: Any) -> Any:
        """The rate at a step, counted from 0: a float, or an array for an array of steps."""
        steps = np.asarray(step, np.float64)
        rate: Any = self.at(_InNumPy(), steps)  # type: ignore[arg-type]
        return np.broadcast_to(rate, steps.shape).copy() if steps.ndim else float(rate)


class _InNumPy:
    """Stands for the builder where a rate is computed in plain Python."""

    def constant(self, value: float, dtype: object) -> Any:
        return np.float64(value)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, _NUMPY_NAMES.get(name, name))


_NUMPY_NAMES = {"lt": "less", "ge": "greater_equal", "select": "where"}

Rate: TypeAlias = float | Schedule | InGraph
_TAKES: dict[str, tuple[type, ...]] = {
    "float": (int, float), "int": (int,), "Rate": (int, float, Schedule, InGraph),
    "Rate | None": (int, float, Schedule, InGraph, type(None)),
}  # fmt: skip


def is_on(rate: Rate) -> bool:
    """Whether a rate may be other than 0."""
    return not isinstance(rate, int | float) or rate != 0


def _rate(f: Builder, rate: Rate, t: Value) -> Value:
    match rate:
        case Schedule():
            return rate.at(f, t)
        case InGraph():
            raise AssertionError("an objective gives its optimizer the values of the graph")
        case _:
            return f.constant(float(rate), F64)


def _share(f: Builder, t: Value, steps: int) -> Value:
    """The fraction of `steps` that is done, from 0 to 1."""
    return f.minimum(t / float(steps), 1.0)


def check_numbers(record: Any) -> None:
    """Raise G0206 if a field of a record for a number, or a rate, holds something else."""
    name = snake(type(record).__name__)
    for field in fields(record):
        takes = _TAKES.get(str(field.type))
        value = getattr(record, field.name)
        if takes and isinstance(value, np.generic | np.ndarray) and value.ndim == 0:
            value = value.item()
            object.__setattr__(record, field.name, value)
        if takes and not isinstance(value, takes):
            help = (
                "a rate is a number, a schedule such as cosine_decay(1e-3, steps=1000), or a hyper"
            )
            raise GraphcError(
                "G0206",
                f"{name}: {field.name} is a {type(value).__name__}, not a number",
                help=help if Schedule in takes else None,
            )


@record
@dataclass(frozen=True)
class ConstantRate(Schedule):
    """`rate = value`"""

    value: float

    def at(self, f: Builder, t: Value) -> Value:
        return f.constant(float(self.value), F64)


@record
@dataclass(frozen=True)
class RateProduct(Schedule):
    """`rate = a * b`, which is written so: `hyper * schedule`"""

    a: Rate
    b: Rate

    def at(self, f: Builder, t: Value) -> Value:
        return _rate(f, self.a, t) * _rate(f, self.b, t)


@record
@dataclass(frozen=True)
class LinearWarmup(Schedule):
    """`rate = peak * (t + 1) / steps` for the first steps, then `after`, counted from there

    after is the peak itself unless given.
    """

    peak: float
    steps: int
    after: Rate | None = None

    def at(self, f: Builder, t: Value) -> Value:
        rising = self.peak * f.minimum((t + 1.0) / float(self.steps), 1.0)
        if self.after is None:
            return rising
        later = _rate(f, self.after, f.maximum(t - float(self.steps), 0.0))
        return f.select(f.lt(t, float(self.steps)), rising, later)


@record
@dataclass(frozen=True)
class CosineDecay(Schedule):
    """`rate = final + (initial - final) * (1 + cos(pi * t / steps)) / 2`, then final

    Loshchilov, Hutter, "SGDR: stochastic gradient descent with warm restarts", 2016.
    """

    initial: float
    steps: int
    final: float = 0.0

    def at(self, f: Builder, t: Value) -> Value:
        wave = 0.5 * (1.0 + f.cos(pi * _share(f, t, self.steps)))
        return self.final + (self.initial - self.final) * wave


@record
@dataclass(frozen=True)
class CosineRestarts(Schedule):
    """`rate = final + (initial - final) * (1 + cos(pi * t / n)) / 2`, again and again

    The first period has n = `steps`, each further one `factor` times as many; t is counted from the
    beginning of the period. Loshchilov, Hutter, "SGDR: stochastic gradient descent with warm
    restarts", 2016.
    """

    initial: float
    steps: int
    factor: int = 1
    final: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.factor >= 1, "cosine_restarts: factor is at least 1", code="G0206")

    def at(self, f: Builder, t: Value) -> Value:
        share = t / float(self.steps)  # of the first period
        if self.factor == 1:
            within = share - f.floor(share)
        else:
            grown = 1.0 + (self.factor - 1.0) * share  # factor^k at the beginning of period k
            period = f.floor(f.log(grown) / log(self.factor) + 1e-9)
            length = f.power(float(self.factor), period)
            within = (share - (length - 1.0) / (self.factor - 1.0)) / length
        wave = 0.5 * (1.0 + f.cos(pi * within))
        return self.final + (self.initial - self.final) * wave


@record
@dataclass(frozen=True)
class OneCycle(Schedule):
    """From `peak / divide` up to `peak` in a share `rise` of the steps, then down; both cosines

    It ends at `peak / divide / end_divide`. Smith, Topin, "Super-convergence: very fast training of
    neural networks using large learning rates", 2017; the form and the numbers are PyTorch's.
    """

    peak: float
    steps: int
    rise: float = 0.3
    divide: float = 25.0
    end_divide: float = 1e4

    def __post_init__(self) -> None:
        super().__post_init__()
        text = "one_cycle: the rise is a share of the steps, between 0 and 1, and has two steps"
        good = 0 < self.rise < 1 and self.rise * self.steps > 1
        require(good, text, code="G0206")

    def at(self, f: Builder, t: Value) -> Value:
        first, top = self.peak / self.divide, self.rise * self.steps - 1.0
        last, length = first / self.end_divide, self.steps - 1.0 - top
        up = 0.5 * (1.0 + f.cos(pi * (t / top)))
        down = 0.5 * (1.0 + f.cos(pi * f.minimum((t - top) / length, 1.0)))
        rising, falling = self.peak + (first - self.peak) * up, last + (self.peak - last) * down
        return f.select(f.ge(t, top), falling, rising)


@record
@dataclass(frozen=True)
class ExponentialDecay(Schedule):
    """`rate = initial * factor^(t / steps)`; staircase: t / steps is rounded down"""

    initial: float
    factor: float
    steps: int
    staircase: bool = False

    def at(self, f: Builder, t: Value) -> Value:
        exponent = t / float(self.steps)
        if self.staircase:
            exponent = f.floor(exponent)
        return self.initial * f.power(self.factor, exponent)


@record
@dataclass(frozen=True)
class PolynomialDecay(Schedule):
    """`rate = final + (initial - final) * (1 - t / steps)^power`, then final; power 1 is linear"""

    initial: float
    steps: int
    final: float = 0.0
    power: float = 1.0

    def at(self, f: Builder, t: Value) -> Value:
        left = f.power(1.0 - _share(f, t, self.steps), self.power)
        return self.final + (self.initial - self.final) * left


def _numbers(what: str, record: Any, field: str) -> tuple[Any, ...]:
    """A field's numbers as a tuple. Raises G0206."""
    value = getattr(record, field)
    numbers = value.tolist() if isinstance(value, np.ndarray) else value
    good = isinstance(numbers, list | tuple) and all(isinstance(x, int | float) for x in numbers)
    require(good, f"{what} are numbers, such as (100, 200), not {value!r}", code="G0206")
    return tuple(numbers)


@record
@dataclass(frozen=True)
class PiecewiseConstant(Schedule):
    """`rate = rates[i]`, i the number of boundaries <= t; one rate more than boundaries"""

    boundaries: tuple[int, ...]
    rates: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("boundaries", "rates"):
            object.__setattr__(self, name, _numbers(f"piecewise_constant: {name}", self, name))
        rising = list(self.boundaries) == sorted(set(self.boundaries))
        good = rising and len(self.rates) == len(self.boundaries) + 1
        text = "piecewise_constant takes rising boundaries, and one more rate than boundaries"
        require(good, f"{text}, not {self.boundaries} and {self.rates}", code="G0206")

    def at(self, f: Builder, t: Value) -> Value:
        rate = f.constant(float(self.rates[0]), F64)
        for start, value in zip(self.boundaries, self.rates[1:], strict=True):
            rate = f.select(f.ge(t, float(start)), f.constant(float(value), F64), rate)
        return rate
