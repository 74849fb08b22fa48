"""Callbacks that set the learning rate, or another hyperparameter."""

from __future__ import annotations

from collections.abc import Callable

from graphc.runtime.callbacks.base import Callback
from graphc.runtime.callbacks.best import Monitor
from graphc.runtime.results import Metrics
from graphc.support.errors import GraphcError


class LearningRate(Callback):
    """Sets the learning rate before every step, to a function of how many steps were made.

    The step must declare it, with `optimizer=graphc.optim.adam(lr=graphc.hyper("lr", 1e-3))`.

    schedule: schedule(steps) -> rate; `steps` is 0 before the first step, and goes on where a
              training is resumed
    name:     of the hyperparameter

    Raises G0571 if the step has no such hyperparameter. An optimizer's own learning-rate schedule
    costs nothing, and needs no callback; this one may be any function, and may be changed.
    """

    def __init__(self, schedule: Callable[[int], float], name: str = "lr") -> None:
        self.schedule, self.name = schedule, name

    def on_train_begin(self) -> None:
        self._set(self.setting.core.steps)

    def on_step_end(self, step: int, metrics: Metrics) -> None:
        self._set(step)

    def _set(self, steps: int) -> None:
        self.setting.core.hyper[self.name] = self.schedule(steps)


class ReduceLROnPlateau(Callback):
    """Multiplies the learning rate when a metric has not improved for some epochs, as in Keras.

    The step must declare it, with `optimizer=graphc.optim.adam(lr=graphc.hyper("lr", 1e-3))`.

    monitor:   the metric, such as "val_loss" or "loss"
    factor:    what the rate is multiplied by, above 0 and below 1
    patience:  after how many epochs without improvement, one after the other; 0 is as 1
    min_delta: a smaller change is no improvement
    mode:      "min" if smaller is better, "max" if larger, "auto": by its name
    cooldown:  how many epochs after a reduction are not counted
    min_lr:    what the rate does not go below
    name:      of the hyperparameter

    The epochs of a training that is resumed are counted anew; the rate is in the checkpoint. Raises
    G0631 for numbers out of range, G0571 if the step has no such hyperparameter, and G0632 if there
    is no such metric.
    """

    def __init__(
        self, monitor: str = "val_loss", *, factor: float = 0.1, patience: int = 10,
        min_delta: float = 1e-4, mode: str = "auto", cooldown: int = 0, min_lr: float = 0.0,
        name: str = "lr",
    ) -> None:  # fmt: skip
        for word, n in (("patience", patience), ("cooldown", cooldown)):
            if type(n) is not int or n < 0:
                text = f"{word}={n!r}: it is a number of epochs from 0"
                raise GraphcError("G0631", text, help="write ReduceLROnPlateau(patience=3)")
        if not isinstance(factor, int | float) or not 0 < factor < 1:
            text = f"factor={factor!r}: the rate is multiplied by a number between 0 and 1"
            raise GraphcError("G0631", text, help="write ReduceLROnPlateau(factor=0.5)")
        self.monitor, self.mode, self.min_delta = monitor, mode, min_delta
        self.factor, self.patience, self.cooldown = factor, patience, cooldown
        self.min_lr, self.name = min_lr, name
        self._forget()

    def _forget(self) -> None:
        self._metric = Monitor(self.monitor, self.mode, self.min_delta)
        self._waited = self._cooling = 0

    def on_train_begin(self) -> None:
        self._forget()
        self.setting.core.hyper[self.name]  # which must be there

    def on_epoch_end(self, epoch: int, metrics: dict[str, float]) -> None:
        value = self._metric.read(metrics, self.setting.validates)
        if value is None:
            return
        if self._cooling:
            self._cooling, self._waited = self._cooling - 1, 0
        if self._metric.improves(value):
            self._waited = 0
        elif not self._cooling:
            self._waited += 1
            if self._waited >= self.patience:
                self._reduce()

    def _reduce(self) -> None:
        hyper = self.setting.core.hyper
        if hyper[self.name] > self.min_lr:
            hyper[self.name] = max(hyper[self.name] * self.factor, self.min_lr)
            self._cooling, self._waited = self.cooldown, 0
