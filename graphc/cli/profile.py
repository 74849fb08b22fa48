"""The command `profile`: where the time of a step goes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graphc.cli.checkpoint_options import load_names_option, load_option, resume_option
from graphc.cli.file_arguments import OutputPath
from graphc.cli.imports import import_option
from graphc.cli.job import CommandJob, in_job, transport_option
from graphc.cli.run import (
    backend_option,
    in_json,
    order_option,
    plan_of,
    seed_option,
    shown_warnings,
    sparse_option,
    strategy_option,
)
from graphc.cli.traces import write_profile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphc.plan.plan import Plan

TABLES = ("line", "op", "kernel", "collective", "node")


@click.command("profile")
@click.argument("file", type=click.Path(path_type=Path))
@strategy_option
@order_option
@sparse_option
@seed_option
@backend_option
@transport_option
@resume_option
@load_option
@load_names_option
@import_option
@click.option(
    "--by", type=click.Choice(TABLES), multiple=True,
    help="Table to print; may be repeated. Default: all but node, which is long.",
)  # fmt: skip
@click.option("--steps", type=click.IntRange(1), default=20, show_default=True,
              help="Steps to record, after some that are not.")  # fmt: skip
@click.option("--top", type=click.IntRange(1), default=10, show_default=True,
              help="Rows of a table to print, at most.")  # fmt: skip
@click.option(
    "--trace", "trace_file", type=OutputPath(),
    help="Also write the recorded steps as a trace, which Perfetto and chrome://tracing show.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print all tables as one line of JSON.")
@in_job
def profile_command(
    running: CommandJob, file: Path, strategy: str | None, order: str | None, sparse: str | None,
    seed: int | None, backend: str, resume: Path | None, load: Path | None,
    load_names: Path | None, by: tuple[str, ...], steps: int, top: int, trace_file: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Show where the time of a step of FILE (.gc or .plan) goes.

    By source line, op, kernel and collective: the time, the share of the step, the rate of
    operations and of bytes, and how near that is to what the machine can do (graphc calibrate). A
    kernel's time is exact; that of a line or an op is an estimate.
    The steps are run on the training data; nothing is saved.
    """
    from graphc.runtime.profiling.rows import BY, SHOWN
    from graphc.runtime.profiling.tables import in_words
    from graphc.runtime.trainer import Trainer
    from graphc.support.files import check_writable

    if resume and load:
        raise click.UsageError("give --resume or --load, not both")
    if trace_file is not None and running.speaks:
        check_writable(trace_file)
    bucket = running.bucket(0, file)
    options = strategy, None, order, bucket, False, sparse, seed, backend
    plan = running.plan(lambda: plan_of(file, *options))
    with Trainer(plan, backend, transport=running.transport) as trainer:
        with shown_warnings():
            _start(trainer, resume, load, load_names)
        found = trainer.profile(batches_of(plan), steps)
    write_profile(found, trace_file)
    chosen = [x for x in BY if x in by] or list(SHOWN)
    running.echo(in_json(found.as_json()) if as_json else in_words(found, chosen, top))


def _start(trainer: Any, resume: Path | None, load: Path | None, load_names: Path | None) -> None:
    """Take the variables from a file."""
    from graphc.cli.checkpoint_options import start_from

    if resume is not None:
        trainer.resume(resume)
    start_from(trainer, load, load_names)


def batches_of(plan: Plan) -> Iterator[dict[str, Any]]:
    """The batches of the training data, in order, without a short last one. Raises G0607, G0819."""
    from graphc.cli.data_files import load_data
    from graphc.cli.file_arguments import check_learns
    from graphc.support.errors import GraphcError

    check_learns(plan)
    train = load_data(plan, "train")
    if train is None:
        help = 'write data train = npz("file.npz", batch=256) into the program'
        raise GraphcError("G0607", "the program names no data to train on", help=help)
    data, spec = train
    size, n = spec["batch"], data.examples()
    return (b for k, b in enumerate(data.batches(size)) if k == 0 or (k + 1) * size <= n)
