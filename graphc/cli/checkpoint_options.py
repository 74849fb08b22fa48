"""The options of `graphc run` that write checkpoints while it trains."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from graphc.cli.options import together

if TYPE_CHECKING:
    from graphc.runtime.checkpoints.saver import Checkpoints, Saver
    from graphc.runtime.trainer import Trainer

checkpoint_options = together(
    click.option(
        "--checkpoint", type=click.Path(path_type=Path), metavar="DIR",
        help="Write checkpoints into this folder while training, each a folder of its own: "
        "step-00000120. The last one is written at the end, or where Ctrl-C ends the training.",
    ),
    click.option(
        "--checkpoint-every", "every", type=click.IntRange(1), metavar="N",
        help="Steps between two checkpoints. Default: one at the end only.",
    ),
    click.option(
        "--keep", type=click.IntRange(1), metavar="K",
        help="Keep the newest K checkpoints of this training; those of others stay. Default: all.",
    ),
)  # fmt: skip


def checkpoints(folder: Path | None, every: int | None, keep: int | None) -> Checkpoints | None:
    """What the options say. Raises UsageError for one that says nothing without the other."""
    from graphc.runtime.checkpoints.saver import Checkpoints

    if folder is None:
        if every or keep:
            raise click.UsageError("--checkpoint-every and --keep need --checkpoint DIR")
        return None
    return Checkpoints(folder, every, keep)


@contextmanager
def checkpointed(trainer: Trainer, where: Checkpoints | None) -> Iterator[Saver | None]:
    """Who writes the checkpoints of a training, the last one at the end of the block."""
    from graphc.runtime.checkpoints.saver import Saver

    if where is None:
        yield None
        return
    with Saver(trainer, where) as saver:
        yield saver
