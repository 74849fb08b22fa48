"""The training loop, of any trainer: what `Trainer.fit` and `Trainer.fit_stream` do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from graphc.runtime.asynchronous.engine import AsynchronousEngine
from graphc.runtime.asynchronous.fit import Trained, Training, check_asynchronous, train
from graphc.runtime.checkpoints.saver import AfterStep, Checkpoints, Saver, saving
from graphc.runtime.data.batches import Batch
from graphc.runtime.data.dataset import Position
from graphc.runtime.results import Metrics
from graphc.runtime.supervision.reporter import REPORTER
from graphc.runtime.synchronous.engine import Engine

OnStep = Callable[[int, Metrics], None]
Parts = Iterator[tuple[Batch, Position]]


class Fittable(Trained, Protocol):
    """A trainer, as the loop sees it."""

    @property
    def engine(self) -> Engine | AsynchronousEngine: ...

    def step(self, batch: Batch | Iterator[Batch]) -> Metrics:
        """Make one update."""
        ...

    def end(self) -> None:
        """Synchronize replicas, so that there is one value of each variable."""
        ...


@dataclass(frozen=True)
class FitOptions:
    """What surrounds the steps: who is told of them, and the files that are written meanwhile."""

    on_step: OnStep | None = None
    record: str | Path | None = None
    replay: str | Path | None = None
    checkpoint: Checkpoints | Saver | None = None


def fit_parts(
    trainer: Fittable, parts: Parts, options: FitOptions, setting: dict[str, Any],
    limit: int | None = None,
) -> Metrics:  # fmt: skip
    """Train on batches, each with the position behind it, and return the last step's results.

    setting: how the batches were made, as a recording notes it; limit: how many there are to be
    """
    check_asynchronous(trainer.plan, options.record, options.replay)
    parts = islice(parts, limit)
    if isinstance(trainer.engine, AsynchronousEngine):
        files = options.record, options.replay
        training = Training(trainer.engine, *files, setting, limit)
        with saving(trainer, options.checkpoint) as after_step:
            return train(trainer, parts, training, options.on_step, after_step)
    with saving(trainer, options.checkpoint) as after_step, trainer.engine.stopping:
        last = _steps(trainer, parts, options.on_step, after_step)
        trainer.end()
    return last


def _steps(
    trainer: Fittable, parts: Parts, on_step: OnStep | None, after_step: AfterStep
) -> Metrics:
    """Make a step with each batch."""
    last: Metrics = {}
    for number, (part, position) in enumerate(parts, 1):
        before = trainer.steps
        REPORTER.step(before + 1)
        try:
            last = trainer.step(part)
        finally:  # Ctrl-C is raised behind a step that was made
            trainer.position = position if trainer.steps > before else trainer.position
        after_step()
        if on_step:
            on_step(number, last)
    return last


def fit_stream(trainer: Fittable, batches: Iterable[Batch], options: FitOptions) -> Metrics:
    """Train on batches as they arrive, at the position that the trainer has."""
    return fit_parts(trainer, ((batch, trainer.position) for batch in batches), options, {})
