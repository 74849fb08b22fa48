"""The traces that commands write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from graphc.runtime.profiling.profile import Profile
    from graphc.runtime.trainer import Trainer


def write_trace(trainer: Trainer, path: Path | None) -> None:
    """Write the trace of a training that `graphc run --trace` recorded."""
    if path is None:
        return
    from graphc.runtime.profiling.traced_run import TracedTrainer

    assert isinstance(trainer, TracedTrainer)
    if trainer.recorded is None:
        click.echo(f"note: {path} is not written: fewer than two steps were made", err=True)
    else:
        write_profile(trainer.recorded, path)


def write_profile(found: Profile, path: Path | None) -> None:
    """Write the trace of recorded steps, and say where it is."""
    if path is not None:
        click.echo(f"wrote {found.trace(path)}: open it in ui.perfetto.dev", err=True)
