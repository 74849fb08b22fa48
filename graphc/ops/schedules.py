"""Learning-rate schedules: frozen records, called on the number of updates made before this one.

A plain number is the constant schedule. All are computed in f64, as scalars.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import pi
from typing import TypeAlias

from graphc.builder import Builder, Value
from graphc.op import record, require
from graphc.types import F64


class Schedule(ABC):
    """`schedule(f, step)` is the rate at a step, counted from 0."""

    @abstractmethod
    def at(self, f: Builder, t: Value) -> Value:
        """The rate at step t, both f64 scalars."""

    def __call__(self, f: Builder, step: Value) -> Value:
        """The rate, an f64 scalar; step is an integer scalar."""
        return self.at(f, f.to_dtype(step, F64))


Rate: TypeAlias = float | Schedule


def _rate(f: Builder, rate: Rate, t: Value) -> Value:
    return rate.at(f, t) if isinstance(rate, Schedule) else f.constant(float(rate), F64)


def _share(f: Builder, t: Value, steps: int) -> Value:
    """How much of `steps` is done, from 0 to 1."""
    return f.minimum(t / float(steps), 1.0)


def _steps(name: str, steps: int) -> None:
    require(steps >= 1, f"{name}: {steps} steps", code="G0206")


@record
@dataclass(frozen=True)
class ConstantRate(Schedule):
    """`rate = value`"""

    value: float

    def at(self, f: Builder, t: Value) -> Value:
        return f.constant(float(self.value), F64)


@record
@dataclass(frozen=True)
class LinearWarmup(Schedule):
    """`rate = peak * (t + 1) / steps` for the first steps, then `after`, its time counted anew

    after is the peak itself unless given.
    """

    peak: float
    steps: int
    after: Rate | None = None

    def __post_init__(self) -> None:
        _steps("linear_warmup", self.steps)

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

    def __post_init__(self) -> None:
        _steps("cosine_decay", self.steps)

    def at(self, f: Builder, t: Value) -> Value:
        wave = 0.5 * (1.0 + f.cos(pi * _share(f, t, self.steps)))
        return self.final + (self.initial - self.final) * wave


@record
@dataclass(frozen=True)
class ExponentialDecay(Schedule):
    """`rate = initial * factor^(t / steps)`; staircase: t / steps is rounded down"""

    initial: float
    factor: float
    steps: int
    staircase: bool = False

    def __post_init__(self) -> None:
        _steps("exponential_decay", self.steps)

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

    def __post_init__(self) -> None:
        _steps("polynomial_decay", self.steps)

    def at(self, f: Builder, t: Value) -> Value:
        left = f.power(1.0 - _share(f, t, self.steps), self.power)
        return self.final + (self.initial - self.final) * left


@record
@dataclass(frozen=True)
class PiecewiseConstant(Schedule):
    """`rate = rates[i]`, i the number of boundaries <= t; one rate more than boundaries"""

    boundaries: tuple[int, ...]
    rates: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "boundaries", tuple(self.boundaries))
        object.__setattr__(self, "rates", tuple(self.rates))
        rising = list(self.boundaries) == sorted(set(self.boundaries))
        good = rising and len(self.rates) == len(self.boundaries) + 1
        text = "piecewise_constant: rising boundaries, and one rate more than boundaries"
        require(good, f"{text}, not {self.boundaries} and {self.rates}", code="G0206")

    def at(self, f: Builder, t: Value) -> Value:
        rate = f.constant(float(self.rates[0]), F64)
        for start, value in zip(self.boundaries, self.rates[1:], strict=True):
            rate = f.select(f.ge(t, float(start)), f.constant(float(value), F64), rate)
        return rate
