"""The training loop of an asynchronous strategy: its workers take the batches, in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any

from graphc.runtime.asynchronous.engine import AsynchronousEngine
from graphc.runtime.asynchronous.fit import Training, train
from graphc.runtime.checkpoints.saver import AfterStep
from graphc.runtime.data.dataset import Position
from graphc.runtime.results import Metrics
from graphc.runtime.training.means import Means
from graphc.support.dataclass import dataclass

if TYPE_CHECKING:
    from graphc.runtime.training.loop import Fit

Part = tuple[Any, Position]  # a batch, and the position behind it


def run_asynchronously(fit: Fit, engine: AsynchronousEngine, after_step: AfterStep) -> None:
    """Train epoch by epoch, or, if nothing happens between epochs, in one go."""
    options = fit.options
    setting = options.setting | ({"apart": True} if fit.is_apart else {})
    training = Training(engine, options.record, options.replay, setting, options.steps)
    with training.written():
        if fit.is_apart:
            _apart(fit, training, after_step)
            training.check_used()
        else:
            _together(fit, training, after_step)


@dataclass
class _Reading:
    """Batches on their way to the workers. sizes: of each its epoch and examples, by number"""

    fit: Fit
    number: int = 0
    sizes: dict[int, tuple[int, int]] = field(default_factory=dict)
    complete: bool = False  # whether all batches of the epoch were taken

    def __post_init__(self) -> None:
        self._before = self.fit.made

    def parts(self, at: Position) -> Iterator[Part]:
        """The batches of an epoch, each with the position behind it."""
        data, most, examples = self.fit.data, self.fit.options.steps, 0
        left = None if most is None else most - self._before - self.number
        self.complete = False
        first = self.number
        for batch in islice(data.epoch(at), left):
            if self.fit.trainer.stop_wanted:
                return
            size = data.size(batch)
            examples += size
            self.sizes[self.number] = at.epoch, size
            self.number += 1
            yield batch, data.position(at, examples)
        self.complete = left is None or self.number - first < left


def _apart(fit: Fit, training: Training, after_step: AfterStep) -> None:
    """Let the workers finish each epoch before what comes behind it."""
    hooks = fit.step_callbacks()
    while not fit.is_over:
        at, reading = fit.begin_epoch(), _Reading(fit)

        def on_push(batch: int, results: Metrics, reading: _Reading = reading) -> None:
            fit.means.add(results, reading.sizes.pop(batch)[1])
            fit.history.last_step = results
            for hook in hooks:
                hook(fit.begun + fit.made + fit.means.steps, results)

        train(fit.trainer, reading.parts(at), training, on_push, after_step)
        if not fit.end_epoch(at, reading.complete):
            return


def _together(fit: Fit, training: Training, after_step: AfterStep) -> None:
    """Hand out the batches of all epochs, and sort the results by epoch."""
    reading, hooks, rows = _Reading(fit), fit.step_callbacks(), dict[int, _EpochRow]()
    begun = perf_counter()

    def on_push(batch: int, results: Metrics) -> None:
        epoch, size = reading.sizes.pop(batch)
        rows.setdefault(epoch, _EpochRow()).add(results, size)
        fit.examples += size
        fit.made += 1
        fit.history.last_step = results
        for hook in hooks:
            hook(fit.begun + fit.made, results)

    try:
        train(fit.trainer, _every_epoch(fit, reading), training, on_push, after_step)
    finally:
        number = fit.begun
        for epoch, row in sorted(rows.items()):
            number += row.means.steps
            seconds, begun = row.ended - begun, row.ended
            fit.history.add(epoch + 1, number, row.means.examples, seconds, row.means.result())
    if reading.complete:
        fit.trainer.position = Position(
            fit.trainer.position.epoch + bool(fit.trainer.position.example)
        )
    for epoch, row in sorted(rows.items()):
        for callback in fit.options.callbacks:
            callback.on_epoch_end(epoch + 1, row.means.result())


@dataclass
class _EpochRow:
    """The results of an epoch. ended: when the last of them came"""

    means: Means = field(default_factory=Means)
    ended: float = 0.0

    def add(self, results: Metrics, examples: int) -> None:
        self.means.add(results, examples)
        self.ended = perf_counter()


def _every_epoch(fit: Fit, reading: _Reading) -> Iterator[Part]:
    """The batches of all epochs."""
    at, epochs, most = fit.trainer.position, 0, fit.options.epochs
    while most is None or epochs < most:
        before = reading.number
        for callback in fit.options.callbacks:
            callback.on_epoch_begin(at.epoch + 1)
        yield from reading.parts(at)
        if not reading.complete:
            return
        if reading.number == before and not at.example:
            fit.data.check_empty(epochs)
            return
        at, epochs = Position(at.epoch + 1), epochs + 1
