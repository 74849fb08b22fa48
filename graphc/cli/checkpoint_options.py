"""The options of `graphc run` that write checkpoints while it trains, and where it starts from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graphc.cli.drivers import keep
from graphc.runtime.transports.processes import ALONE, Processes

if TYPE_CHECKING:
    from graphc.runtime.checkpoints.saver import Checkpoints, Saver
    from graphc.runtime.checkpoints.saving import Saved
    from graphc.runtime.trainer import Trainer

resume_option = click.option(
    "--resume", type=click.Path(path_type=Path),
    help="Resume from a file that --save wrote, or from the newest good checkpoint in a folder.",
)  # fmt: skip
load_option = click.option(
    "--load", type=click.Path(path_type=Path),
    help="Take those variables that match by name and shape: of a .safetensors file, a "
    "model.safetensors.index.json, a .pt file of tensors, or a checkpoint; but not how far a "
    "training was.",
)  # fmt: skip
names_option = click.option(
    "--load-names", type=click.Path(path_type=Path), metavar="JSON",
    help="Which tensor of --load is which variable: a file such as "
    '{"w1": "fc1.weight.T"}; .T is the transpose. Default: those of the same name.',
)  # fmt: skip
rounded_option = click.option(
    "--load-rounded", is_flag=True, expose_value=False, callback=keep,
    help="Round weights of --load that the dtypes of the variables don't have. Otherwise that is "
    "an error; weights of a narrower dtype, such as bf16 in f32, are taken as they are.",
)  # fmt: skip


def load_names_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how --load is read; `start_from` reads them."""
    return names_option(rounded_option(command))


OPTIONS = (
    load_names_option,
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


def checkpoint_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def checkpoints(folder: Path | None, every: int | None, keep: int | None) -> Checkpoints | None:
    """What the options say. Raises UsageError for one that says nothing without the other."""
    from graphc.runtime.checkpoints.saver import Checkpoints

    if folder is None:
        if every or keep:
            raise click.UsageError("--checkpoint-every and --keep need --checkpoint DIR")
        return None
    return Checkpoints(folder, every, keep)


def resumed_training(
    path: Path | None, folder: Path | None, processes: Processes = ALONE
) -> Saved | None:
    """The training to resume, if any.

    path: what --resume says; folder: what --checkpoint says. If both are one folder without
    checkpoints, the training begins: so one command starts a training, and resumes it.
    """
    from graphc.runtime.checkpoints.saving import read
    from graphc.runtime.checkpoints.series import is_empty

    if path is None or (path == folder and is_empty(path)):
        return None
    return read(path, processes)


def start_from(trainer: Trainer, load: Path | None, names: Path | None) -> None:
    """Start from the weights that --load and --load-names say, if any."""
    from graphc.runtime.checkpoints.weights import read_names

    rounded = click.get_current_context().meta["graphc.load_rounded"]
    if load is not None:
        trainer.start_from(load, read_names(names) if names is not None else None, rounded)
    elif names is not None or rounded:
        raise click.UsageError(f"--load-{'rounded' if rounded else 'names'} needs --load")


@contextmanager
def checkpointed(trainer: Trainer, where: Checkpoints | None) -> Iterator[Saver | None]:
    """Who writes the checkpoints of a training, the last one at the end of the block."""
    from graphc.runtime.checkpoints.saver import Saver

    if where is None:
        yield None
        return
    with Saver(trainer, where) as saver:
        yield saver
