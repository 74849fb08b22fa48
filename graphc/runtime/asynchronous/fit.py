"""Asynchronous training, which can be recorded and replayed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from graphc.plan.plan import Plan
from graphc.runtime.asynchronous.coordinator import RecordedPush, TakeSnapshot
from graphc.runtime.asynchronous.drivers import DriverPlugin
from graphc.runtime.asynchronous.engine import AsynchronousEngine
from graphc.runtime.asynchronous.numbered_stream import NumberedStream
from graphc.runtime.asynchronous.recordings import (
    Header,
    Recording,
    check_bound,
    check_header,
    load,
    recording,
)  # fmt: skip
from graphc.runtime.asynchronous.threads import DRIVER as THREADS
from graphc.runtime.backends import plugins
from graphc.runtime.checkpoints.history import History
from graphc.runtime.checkpoints.saver import AfterStep
from graphc.runtime.checkpoints.saving import Saved
from graphc.runtime.checkpoints.sharded import Savable
from graphc.runtime.data.ahead import Ahead
from graphc.runtime.data.batches import Batch
from graphc.runtime.data.dataset import Position
from graphc.runtime.results import Metrics, plains
from graphc.runtime.transports.processes import Processes
from graphc.support.errors import GraphcError, GraphcWarning

FEW = 10  # updates of each worker


class Training:
    """One run of an asynchronous engine, and its files.

    record, replayed: files of recordings, or None
    data:             how the batches were made; a recording of others is rejected (G0522)
    limit:            how many batches there are, if that is known. Raises G0523 if a recording uses
                      more; warns (G0477) of few
    """

    def __init__(
        self, engine: AsynchronousEngine, record: str | Path | None, replayed: str | Path | None,
        data: Mapping[str, Any], limit: int | None = None,
    ) -> None:  # fmt: skip
        self.engine, self.record = engine, record
        self.header = Header("", "", "", "", {})
        self.recording: Recording | None = None
        self.pushes = 0
        self.results: Mapping[str, Any] = {}
        if record or replayed:
            self.header = _header(engine, data)
        if replayed:
            self.recording = load(replayed)
            check_header(self.recording.header, self.header)
            check_bound(self.recording, engine.how.staleness)
        if limit is not None:
            self.check(limit)
            warn_of_few(engine.plan, limit)

    def run(
        self, source: NumberedStream[Any], on_push: Any,
        snapshot: Callable[[], TakeSnapshot | None] = lambda: None,
    ) -> Mapping[str, Any]:  # fmt: skip
        """Train to the end; returns the results of the last push."""

        with recording(self.record, self.header) as write:

            def note(entry: RecordedPush, results: Mapping[str, Any]) -> None:
                write(entry)
                self.pushes, self.results = self.pushes + 1, results
                on_push(self.pushes, results)

            if self.recording is not None:
                self.engine.replay(self.recording.entries, source, note)
            else:
                self.engine.run(source, note, snapshot)
        return self.results

    def check(self, batches: int) -> None:
        """Raise G0523 if a recording uses more batches than there are."""
        used = max((e.batch for e in self.recording.entries), default=-1) if self.recording else -1
        if used >= batches:
            text = f"the recording uses batch {used}, but this run has {batches}"
            raise GraphcError("G0523", text, help="replay it with as many epochs or steps")


class Trained(Savable, Protocol):
    """A trainer of an asynchronous plan."""

    position: Position
    ahead: Ahead
    order: str
    history: History


@dataclass
class TrainingSnapshot:
    """A training as it was after one of its pushes; to be saved (see `Savable`)."""

    plan: Plan
    resumed: tuple[str, int]
    processes: Processes
    made: Saved
    engine: AsynchronousEngine
    valid: bool = True

    @property
    def steps(self) -> int:
        return self.made.steps

    def saved(self, apart: bool = False) -> Saved:
        return self.made


def train(
    trainer: Trained, parts: Iterator[tuple[Batch, Position]], training: Training,
    on_step: Callable[[int, Metrics], None] | None, after_step: AfterStep,
) -> Metrics:  # fmt: skip
    """Let workers and servers train until the batches are used up."""
    source, begun = NumberedStream(parts), (trainer.position, trainer.ahead)

    def on_push(number: int, results: Mapping[str, Any]) -> None:
        if on_step:
            on_step(number, plains(results))

    def snapshot() -> TakeSnapshot | None:
        if not after_step.is_due(trainer.steps):
            return None
        position, ahead = source.place(*begun)
        at = trainer.steps, position, trainer.history, trainer.plan.meta.get("seed", 0)

        def take(values: Mapping[str, Any]) -> None:
            made = Saved(values, *at, trainer.order, ahead=ahead)
            plan, resumed, processes = trainer.plan, trainer.resumed, trainer.processes
            after_step(TrainingSnapshot(plan, resumed, processes, made, training.engine))

        return take

    try:
        return plains(training.run(source, on_push, snapshot))
    finally:
        trainer.position, trainer.ahead = source.place(*begun)


def _header(engine: AsynchronousEngine, data: Mapping[str, Any]) -> Header:
    plan = engine.plan
    return Header(
        plan.meta.get("fingerprint", ""), plan.strategy, engine.start(), engine.backend.name,
        dict(data),
    )  # fmt: skip


def check_asynchronous(plan: Plan, record: Any, replayed: Any) -> None:
    """Raise G0525 if a recording is requested of a strategy that needs none."""
    if plan.asynchronous is None and (record or replayed):
        text = f"{plan.strategy} has nothing to record: it does the same in every run"
        help = (
            "only these runs differ: parameter_server(workers, servers, staleness=k) with "
            "k > 0 or none"
        )
        raise GraphcError("G0525", text, help=help)


def driver_of(plan: Plan, driver: str | DriverPlugin) -> DriverPlugin:
    """The driver of a name. Raises G0575 if one was chosen for a strategy without roles."""
    if plan.asynchronous is None and driver != THREADS.name:
        name = driver if isinstance(driver, str) else driver.name
        text = f"{plan.strategy} has no servers and workers that the driver '{name}' could run"
        help = "a driver is for parameter_server(workers, servers, staleness=k), k > 0 or none"
        raise GraphcError("G0575", text, help=help)
    if driver == THREADS.name:
        return THREADS
    return plugins.driver(driver) if isinstance(driver, str) else driver


def warn_of_few(plan: Plan, steps: int) -> None:
    """Warn (G0477) if each worker makes few updates: most of them then use old variables."""
    how = plan.asynchronous
    if how is not None and steps < FEW * how.workers:
        text = f"{steps} updates for {how.workers} workers: each makes about {steps // how.workers}"
        help = "use smaller batches, more epochs, or fewer workers"
        warning = GraphcError("G0477", text, help=help).render().replace("error", "warning", 1)
        warnings.warn(GraphcWarning(warning), stacklevel=3)
