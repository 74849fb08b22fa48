"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from graphc.cli import completion

Command = TypeVar("Command", bound=Callable[..., Any])
Option = Callable[[Any], Any]


def added(command: Command, options: Sequence[Option]) -> Command:
    """The command with these options, in this order."""
    for option in reversed(options):
        command = option(command)
    return command


def keep(context: click.Context, option: click.Parameter, value: Any) -> None:
    """Keep the value in the context, for a function that asks for it: a command that has many
    options is not given those that it only hands on."""
    context.meta[f"graphc.{option.name}"] = value


bucket_option = click.option(
    "--bucket-bytes", "bucket", type=click.IntRange(0), default=0,
    help="Bucket small all-reduces, reduce-scatters and all-gathers up to this many bytes. "
    "Default: no buckets; 1 MiB over links slower than memory.",
)  # fmt: skip
peak_option = click.option("--peak", help="Memory limit for each device, such as 2GiB.")
backend_option = click.option(
    "--backend", default="numpy", show_default=True, shell_complete=completion.backends,
    help="Backend to run on; `graphc backends` lists them.",
)  # fmt: skip
seed_option = click.option(
    "--seed", type=click.IntRange(0, 2**63 - 1), metavar="INTEGER",
    help="Seed of initial values, dropout and other random functions without a seed of their own. "
    "Shuffling the data has its own seed. Default: 0.",
)  # fmt: skip


def bytes_of(text: str | None, option: str) -> int | None:
    """The number of bytes in a text such as `2GiB`, `500MB` or `1024`; None for None."""
    from graphc.support.units import size_of

    if text is None:
        return None
    size = size_of(text)
    if size is None:
        raise click.BadParameter(f"'{text}' is not a size; write 2GiB or 500MB", param_hint=option)
    return size
