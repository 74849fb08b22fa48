"""The progress bar of a training: steps, metrics, throughput, time left."""

from __future__ import annotations

import sys
from time import perf_counter
from typing import Any

from graphc.runtime.callbacks.base import Callback
from graphc.runtime.results import Metrics, loss_of

PAUSE = 0.1  # seconds between two looks of the bar: drawing it takes longer than a small step
WIDE = 100  # columns: in fewer, less is shown


class ProgressBar(Callback):
    """Shows a bar on stderr, or in a notebook: steps, epoch, metrics, examples/s, and time left.

    In a job of several processes, process 0 shows it.
    """

    waits = False  # asynchronous workers go on

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._begun = self._drawn = 0.0
        self._epoch, self._validated = "", ""
        self._latest: tuple[int, Metrics] | None = None
        self._wide = True

    def on_train_begin(self) -> None:
        if not self.writes:
            return
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        console = Console(stderr=True)
        self._wide = console.width >= WIDE
        columns = (
            TextColumn("{task.fields[epoch]}"), BarColumn(30 if self._wide else 8),
            MofNCompleteColumn(), TextColumn("{task.description}"),
            TextColumn("{task.fields[speed]}"), TimeRemainingColumn(),
        )  # fmt: skip
        self._bar = Progress(*columns, console=console)
        self._task = self._bar.add_task("", total=self.setting.steps, epoch="training", speed="")
        self._validated, self._latest = "", None
        self._begun = self._drawn = perf_counter()
        self._bar.start()

    def on_epoch_begin(self, epoch: int) -> None:
        last = self.setting.last_epoch
        self._epoch = f"epoch {epoch}/{last}" if last else f"epoch {epoch}"

    def on_step_end(self, step: int, metrics: Metrics) -> None:
        self._latest = step, metrics
        if perf_counter() - self._drawn >= PAUSE:
            self._draw()

    def on_epoch_end(self, epoch: int, metrics: dict[str, float]) -> None:
        found = [(k, x) for k, x in metrics.items() if k.startswith("val_")]
        some = found[: 3 if self._wide else 1]
        self._validated = "".join(f" {name} {x:.4f}" for name, x in some)

    def _draw(self) -> None:
        if self._bar is None or self._latest is None:
            return
        self._drawn = perf_counter()
        step, metrics = self._latest
        loss = loss_of(metrics)
        speed = self.setting.examples() / max(self._drawn - self._begun, 1e-9)
        self._bar.update(
            self._task, completed=step - self.setting.begun, epoch=self._epoch,
            description=("" if loss is None else f"loss {loss:.4f}") + self._validated,
            speed=f"{speed:,.0f} {'examples' if self._wide else 'ex'}/s",
        )  # fmt: skip

    def close(self) -> None:
        if self._bar is not None:
            self._draw()
            self._bar.stop()
            self._bar = None


def is_watched() -> bool:
    """Whether someone sees a progress bar: stderr is a terminal, or this is a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules
