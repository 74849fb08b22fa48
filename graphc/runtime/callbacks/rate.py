"""A callback that sets a hyperparameter before every step."""

from __future__ import annotations

from collections.abc import Callable

from graphc.runtime.callbacks.base import Callback
from graphc.runtime.results import Metrics


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
