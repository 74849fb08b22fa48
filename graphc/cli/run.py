"""run and compile: from a .gc file or a plan to trained variables."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from graphc.runtime.data import Dataset
    from graphc.runtime.plan import Plan
    from graphc.runtime.trainer import Trainer

strategy_option = click.option(
    "--strategy", help="A strategy, such as 'mirrored(4) * accumulate(2)'. Default: the file's own."
)
peak_option = click.option("--peak", help="Limit on what one device may need, such as 2GiB.")


@click.command("run")
@click.argument("file", type=click.Path(path_type=Path))
@strategy_option
@peak_option
@click.option("--backend", default="numpy", show_default=True, help="See `graphc backends`.")
@click.option("--epochs", type=click.IntRange(1), help="Epochs to train. Default: the file's own.")
@click.option("--steps", type=click.IntRange(1), help="Steps to train, instead of epochs.")
@click.option("--save", type=click.Path(path_type=Path), help="Write the variables (.safetensors).")
@click.option("--json", "as_json", is_flag=True, help="The last line on stdout is one JSON object.")
@click.option("--quiet", is_flag=True, help="No progress bar.")
def run_command(
    file: Path, strategy: str | None, peak: str | None, backend: str, epochs: int | None,
    steps: int | None, save: Path | None, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Train what FILE (.gc or .plan) describes, and evaluate it on its test data."""
    from graphc.runtime.trainer import Trainer

    plan = plan_of(file, strategy, peak)
    with Trainer(plan, backend) as trainer:
        start = time.perf_counter()
        last = _train(trainer, epochs, steps, quiet or as_json)
        seconds = time.perf_counter() - start
        metrics = _evaluate(trainer)
        if save is not None:
            from graphc.runtime.checkpoint import save_variables

            save_variables(save, trainer.variables())
        report = {
            "steps": trainer.steps,
            "loss": last.get("loss"),
            "metrics": metrics,
            "params_sha256": trainer.params_sha256(),
            "strategy": plan.strategy,
            "devices": plan.mesh.devices,
            "backend": trainer.backend.name,
            "executor": trainer.backend.executor,
            "peak_bytes": plan.programs["train"].peak_bytes,
            "sent_bytes": plan.programs["train"].sent_bytes,
            "compile_seconds": plan.meta.get("compile_seconds", 0.0),
            "run_seconds": seconds,
        }
    click.echo(json.dumps(report) if as_json else _in_words(report))


@click.command("compile")
@click.argument("file", type=click.Path(path_type=Path))
@strategy_option
@peak_option
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Default: FILE with .plan.")
def compile_command(
    file: Path, strategy: str | None, peak: str | None, output: Path | None
) -> None:
    """Compile FILE to a plan, which runs without the source: graphc run FILE.plan."""
    plan = plan_of(file, strategy, peak)
    target = output or file.with_suffix(".plan")
    plan.save(target)
    train = plan.programs["train"]
    click.echo(
        f"wrote {target}: {plan.strategy} on {_devices(plan.mesh.devices)}, of which each needs "
        f"at most {train.peak_bytes:,} bytes ({train.variable_bytes:,} for variables) "
        f"and sends {train.sent_bytes:,} in a step"
    )


def plan_of(file: Path, strategy: str | None, peak: str | None) -> Plan:
    """The plan in a .plan file, or the one that a .gc file compiles to. Warnings are printed."""
    if file.suffix == ".plan":
        from graphc.runtime.plan import load

        if strategy or peak:
            raise click.UsageError(
                "a plan is compiled already: give --strategy and --peak to compile"
            )
        return load(file)
    from graphc.driver import compile_module
    from graphc.frontend.lower import load_module
    from graphc.strategy import parse_strategy

    with shown_warnings():
        module = load_module(file)
        chosen = parse_strategy(strategy) if strategy else None
        return compile_module(module, chosen, peak=bytes_of(peak) if peak else None)


@contextmanager
def shown_warnings() -> Iterator[None]:
    """Print the compiler's warnings as it prints errors."""
    from graphc.errors import GraphcWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GraphcWarning)
        yield
    for warning in caught:
        if isinstance(warning.message, GraphcWarning):
            click.echo(str(warning.message), err=True)


def bytes_of(text: str) -> int:
    """`2GiB`, `500MB`, `1024` in bytes."""
    import re

    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?\s*", text, re.IGNORECASE)
    if match is None:
        raise click.BadParameter(f"'{text}' is no size; write 2GiB or 500MB", param_hint="--peak")
    base = 1024 if match.group(3) else 1000
    return int(float(match.group(1)) * base ** " KMGT".index(match.group(2).upper() or " "))


def load_data(plan: Plan, name: str) -> tuple[Dataset, dict[str, Any]] | None:
    """A dataset of the plan with its specification, or None where the plan has none."""
    from graphc.runtime.data import load

    spec = plan.data.get(name)
    if spec is None:
        return None
    program = plan.programs["train" if name == "train" else "evaluate"]
    return load(spec["kind"], spec["path"], program.inputs), spec


def _train(trainer: Trainer, epochs: int | None, steps: int | None, quiet: bool) -> dict[str, Any]:
    from graphc.errors import GraphcError

    found = load_data(trainer.plan, "train")
    if found is None:
        raise GraphcError("G0607", "the program names no data to train on")
    data, spec = found
    duration = trainer.plan.meta.get("duration") or {"count": 1, "unit": "epochs"}
    if epochs is None and steps is None:
        epochs = duration["count"] if duration["unit"] == "epochs" else None
        steps = duration["count"] if duration["unit"] == "steps" else None
    total = steps if steps is not None else (epochs or 1) * data.steps(spec["batch"])
    with _progress(total, quiet) as on_step:
        return trainer.fit(
            data, spec["batch"], steps=total, shuffle_seed=spec["shuffle_seed"], on_step=on_step
        )


@contextmanager
def _progress(total: int, quiet: bool) -> Iterator[Any]:
    """A progress bar on stderr with the last loss; None where it is not wanted."""
    if quiet:
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("loss", total=total)

        def on_step(number: int, metrics: dict[str, Any]) -> None:
            bar.update(task, completed=number, description=f"loss {metrics.get('loss', 0):.4f}")

        yield on_step


def _evaluate(trainer: Trainer) -> dict[str, Any]:
    found = load_data(trainer.plan, "test")
    if found is None:
        return {}
    data, spec = found
    return trainer.evaluate(data.batches(spec["batch"]))


def _in_words(report: dict[str, Any]) -> str:
    metrics = ", ".join(f"{k} {v:.4f}" for k, v in report["metrics"].items())
    tested = f"test: {metrics}\n" if metrics else ""
    return (
        f"{report['steps']} steps in {report['run_seconds']:.1f} s "
        f"on {_devices(report['devices'])} ({report['strategy']}, {report['backend']})\n"
        f"last loss {report['loss']:.4f}\n{tested}parameters {report['params_sha256'][:16]}"
    )


def _devices(n: int) -> str:
    return "1 device" if n == 1 else f"{n} devices"
